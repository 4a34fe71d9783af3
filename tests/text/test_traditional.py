"""Chinese in traditional characters is read as the same in simplified ones, and its words are traditional."""

from __future__ import annotations

import pytest
from test_cases import CASES, cases

from cosyvoice_runtime.text.normalise import Normaliser

SIMPLIFIED = (
    "万专业东丝两个为举么乐习书买争于云亚产亩亿仅从们价优会传伦体余侠债储儿关兴兹养内册写农决净减几凯"
    "击划刘则创剂剧办务动劳势区医华协单卖占卢卧卫厅历压厦叁参双发只叶号后员周咨响团园围国图圆圣场块声"
    "处复头夺奖奥妇学宝实宫宽对导将尔层届属岁岛峰币师带帧并庆应开弃张弹强当录征径态总恒戏战户执护报拥"
    "拨择挂换据搅摄数斗时显术机杂权杠条来杰构柜柠栋栏树桥梦检楼欧歼毕气汇沟没沪洁浓润涨温游湿滞满炉炖"
    "点烧热独玛环现电画盐盘码种积税笔笼筛签篮类粤粮红约级纪纬纳纸纽线练组细终经结给络绝统绩续综编缴网"
    "罗罚职胜胶脑脚腊舰节苏苹范药获营蓝装见观规视计订认训议讲设访证评诊词译试诗话询语误说请读课谁调谞"
    "负财败账货质购贰贴贵贷贸费资赛赞车转轮轰载辅辑输达过运还这进连选递邮释里针钟钠钱钾铁铅铢银销错锦"
    "键镑长门闭问闰间阅队阳际陆险静韩页顶顷项顿预领频额风飙飞饭饮马驱骁验鸡鸦麦黄齐龄龙"
)
TRADITIONAL = (
    "萬專業東絲兩個為舉麼樂習書買爭於雲亞產畝億僅從們價優會傳倫體餘俠債儲兒關興茲養內冊寫農決淨減幾凱"
    "擊劃劉則創劑劇辦務動勞勢區醫華協單賣佔盧臥衛廳歷壓廈叄參雙發隻葉號後員週諮響團園圍國圖圓聖場塊聲"
    "處復頭奪獎奧婦學寶實宮寬對導將爾層屆屬歲島峯幣師帶幀並慶應開棄張彈強當錄徵徑態總恆戲戰戶執護報擁"
    "撥擇掛換據攪攝數鬥時顯術機雜權槓條來傑構櫃檸棟欄樹橋夢檢樓歐殲畢氣匯溝沒滬潔濃潤漲溫遊溼滯滿爐燉"
    "點燒熱獨瑪環現電畫鹽盤碼種積稅筆籠篩籤籃類粵糧紅約級紀緯納紙紐線練組細終經結給絡絕統績續綜編繳網"
    "羅罰職勝膠腦腳臘艦節蘇蘋範藥獲營藍裝見觀規視計訂認訓議講設訪證評診詞譯試詩話詢語誤說請讀課誰調諝"
    "負財敗賬貨質購貳貼貴貸貿費資賽贊車轉輪轟載輔輯輸達過運還這進連選遞郵釋裡針鐘鈉錢鉀鐵鉛銖銀銷錯錦"
    "鍵鎊長門閉問閏間閱隊陽際陸險靜韓頁頂頃項頓預領頻額風飆飛飯飲馬驅驍驗雞鴉麥黃齊齡龍"
)
"""Characters of the Chinese cases, without those of which traditional texts use both."""
TO_TRADITIONAL = str.maketrans(SIMPLIFIED, TRADITIONAL)
TO_SIMPLIFIED = str.maketrans(TRADITIONAL, SIMPLIFIED)


@pytest.mark.parametrize("name", sorted(path.stem for path in CASES.glob("*_zh.tsv")))
def test_both_scripts_are_read_alike(name: str, normalise: Normaliser) -> None:
    different = []
    for language, _, written, _ in cases(name):
        simplified = normalise(written, language).translate(TO_SIMPLIFIED)
        traditional = normalise(written.translate(TO_TRADITIONAL), language)
        if traditional.translate(TO_SIMPLIFIED) != simplified:
            different.append(f"{written} | {simplified} | {traditional}")
    assert not different, "\n".join(different)


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("2個人在3樓", "兩個人在三樓"),
        ("2个人在3楼", "两个人在三楼"),
        ("12:30吃飯，時速60km/h", "十二點三十分吃飯，時速六十公里"),
        ("溫度25℃，評分4.5/5", "溫度二十五攝氏度，評分四點五分，滿分五分"),
        ("第1/10頁", "第一頁，共十頁"),
        ("2km外的里長", "兩公里外的里長"),
        ("臺北2萬人。北京2万人。", "臺北兩萬人。北京两万人。"),
        ("8:30", "八点三十分"),
    ],
)
def test_words_come_in_the_script_of_their_sentence(written: str, spoken: str, normalise: Normaliser) -> None:
    assert normalise(written, "zh") == spoken
