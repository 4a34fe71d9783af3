"""Chinese in traditional characters is read as the same in simplified ones, and its words are traditional."""

from __future__ import annotations

import pytest
from test_cases import CASES, cases

from cosyvoice_runtime.text.normalise import Normaliser

SIMPLIFIED = (
    "万业东丝两个为么乐习书买于云产亿仅从们价优会传体余侠债儿关兴兹内册写农决净减几凯击划刘则创剧办务"
    "动劳区医华协单卖占卢历压厦叁参双发只号后员周咨响团围国图圆圣场块声处复头夺奖奥妇学宝实宽对导将尔"
    "层届岁岛币师带帧并庆应开弃张弹强当录征态总恒戏战户执护报拥拨择据搅摄数斗时显机杂权杠条来构柜柠栋"
    "栏树桥梦检楼欧歼毕气汇沪洁浓润涨温游湿滞满炉炖点烧热独环现电画盐盘码种积税笔筛签篮粤粮红约级纬纳"
    "纸纽线练细终经结给络绝统绩续编网罗罚职胜胶脑腊节苏苹范药获营装见观规视计订认训议讲设访证评词译试"
    "话询误说请读课谁调谞负财败货质购贰贴贵贸费资赛赞车转轮轰载输达过运还这进连选递邮释里钟钠钱钾铁铅"
    "铢银销错键镑长门闭问间阅队阳际陆静韩页顶项预领频额风飞饭马骁验鸡麦黄齐龄龙"
)
TRADITIONAL = (
    "萬業東絲兩個為麼樂習書買於雲產億僅從們價優會傳體餘俠債兒關興茲內冊寫農決淨減幾凱擊劃劉則創劇辦務"
    "動勞區醫華協單賣佔盧歷壓廈叄參雙發隻號後員週諮響團圍國圖圓聖場塊聲處復頭奪獎奧婦學寶實寬對導將爾"
    "層屆歲島幣師帶幀並慶應開棄張彈強當錄徵態總恆戲戰戶執護報擁撥擇據攪攝數鬥時顯機雜權槓條來構櫃檸棟"
    "欄樹橋夢檢樓歐殲畢氣匯滬潔濃潤漲溫遊溼滯滿爐燉點燒熱獨環現電畫鹽盤碼種積稅筆篩籤籃粵糧紅約級緯納"
    "紙紐線練細終經結給絡絕統績續編網羅罰職勝膠腦臘節蘇蘋範藥獲營裝見觀規視計訂認訓議講設訪證評詞譯試"
    "話詢誤說請讀課誰調諝負財敗貨質購貳貼貴貿費資賽贊車轉輪轟載輸達過運還這進連選遞郵釋裡鐘鈉錢鉀鐵鉛"
    "銖銀銷錯鍵鎊長門閉問間閱隊陽際陸靜韓頁頂項預領頻額風飛飯馬驍驗雞麥黃齊齡龍"
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
