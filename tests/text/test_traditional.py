"""Chinese in traditional characters is read as the same in simplified ones, and its words are traditional."""

from __future__ import annotations

import pytest
from test_cases import CASES, cases, plain

from cosyvoice_runtime.text.normalise import Normaliser

SIMPLIFIED = (
    "万专业东丝两个丰为丽举么乐习书买争于云亚产亩亿仅从们价优会传伦体余侠债偿储儿关兴兹养内册写农决净"
    "准减几凯击划刘则创剂剧办务动劳势区医华协单卖占卢卧卫厅历压厢厦叁参双发只叶号后吨听员周咨响团园围"
    "国图圆圣场块坝声壶处复头夺奖奥妇学宝实宫宽对导将尔层届属岁岛峡峰币师带帧并广庆应开弃张弹强当录征"
    "径态总恒戏战户执抛抢护报拥拨择挂挡换据搅摄数斗无时旷显术机杂权杠条来杰构柜柠标栋栏树档桥梦检楼欧"
    "歼毕气汇沟没沪洁测浓润涨温游湿滞满滤潜炉炖点烧热爱状独玛环现电画疗盐盘码确离种积税穷笔笼筛签简篮"
    "类粤粮红约级纪纬纳纸纽线练组细终经结给络绝统绩续维综缓编缴网罗罚职胜胶脑脚腊舰节苏苹范荐荣药获营"
    "蓝补装见观规视计订认训议讲设访证评诊词译试诗话询详语误说请读课谁调谞贞负财败账货质购贰贴贵贷贸费"
    "资赔赛赞跃车转轮轰载辅辑输达过运还这进连迟选递邮释里鉴针钙钟钠钱钾铁铅铜铢银销错锦键镇镑镜长门闭"
    "问闰间闹阅队阳阵阶际陆险静韩页顶顷项顿预领频题额风飙飞饭饮马驱驶驾骁验骤鸡鸣鸦麦黄齐龄龙"
)
TRADITIONAL = (
    "萬專業東絲兩個豐為麗舉麼樂習書買爭於雲亞產畝億僅從們價優會傳倫體餘俠債償儲兒關興茲養內冊寫農決淨"
    "準減幾凱擊劃劉則創劑劇辦務動勞勢區醫華協單賣佔盧臥衛廳歷壓廂廈叄參雙發隻葉號後噸聽員週諮響團園圍"
    "國圖圓聖場塊壩聲壺處復頭奪獎奧婦學寶實宮寬對導將爾層屆屬歲島峽峯幣師帶幀並廣慶應開棄張彈強當錄徵"
    "徑態總恆戲戰戶執拋搶護報擁撥擇掛擋換據攪攝數鬥無時曠顯術機雜權槓條來傑構櫃檸標棟欄樹檔橋夢檢樓歐"
    "殲畢氣匯溝沒滬潔測濃潤漲溫遊溼滯滿濾潛爐燉點燒熱愛狀獨瑪環現電畫療鹽盤碼確離種積稅窮筆籠篩籤簡籃"
    "類粵糧紅約級紀緯納紙紐線練組細終經結給絡絕統績續維綜緩編繳網羅罰職勝膠腦腳臘艦節蘇蘋範薦榮藥獲營"
    "藍補裝見觀規視計訂認訓議講設訪證評診詞譯試詩話詢詳語誤說請讀課誰調諝貞負財敗賬貨質購貳貼貴貸貿費"
    "資賠賽贊躍車轉輪轟載輔輯輸達過運還這進連遲選遞郵釋裡鑑針鈣鐘鈉錢鉀鐵鉛銅銖銀銷錯錦鍵鎮鎊鏡長門閉"
    "問閏間鬧閱隊陽陣階際陸險靜韓頁頂頃項頓預領頻題額風飆飛飯飲馬驅駛駕驍驗驟雞鳴鴉麥黃齊齡龍"
)
"""Characters of the Chinese cases, without those of which traditional texts use both."""
TO_TRADITIONAL = str.maketrans(SIMPLIFIED, TRADITIONAL)
TO_SIMPLIFIED = str.maketrans(TRADITIONAL, SIMPLIFIED)


@pytest.mark.parametrize("name", sorted(path.stem for path in CASES.glob("*_zh.tsv")))
def test_both_scripts_are_read_alike(name: str, normalise: Normaliser) -> None:
    different = []
    for language, _, written, _ in cases(name):
        simplified = normalise(written, language)
        traditional = normalise(written.translate(TO_TRADITIONAL), language)
        one, other = (
            plain(each.translate(TO_SIMPLIFIED).replace("千克", "公斤"), "zh")
            for each in (simplified, traditional)
        )
        if one != other:
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
        ("電話：0912-345-678", "電話：零九一二三四五六七八"),
        ("电话：13812345678", "电话：幺三八幺二三四五六七八"),
        ("2km外的里長", "兩公里外的里長"),
        ("臺北2萬人。北京2万人。", "臺北兩萬人。北京两万人。"),
        ("8:30", "八点三十分"),
    ],
)
def test_words_come_in_the_script_of_their_sentence(written: str, spoken: str, normalise: Normaliser) -> None:
    assert normalise(written, "zh") == spoken
