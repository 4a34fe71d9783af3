"""Chinese in traditional characters is read as the same in simplified ones, and its words are traditional."""

from __future__ import annotations

import pytest
from test_cases import CASES, cases

from cosyvoice_runtime.text.normalise import Normaliser

SIMPLIFIED = (
    "万业东丝两个为么乐习书买于云产亿仅从们价优会体余侠债儿关兴兹内册写农决净减几凯击划刘则创剧办务动"
    "劳区医华协单卖占卢历压参双发只号后员周咨团国图圆场块声处复头夺奖奥妇学实宽对导将尔层届岁币带帧并"
    "庆应开弃弹当录征态总戏战户护报拥拨择据搅摄数斗时显机权杠条来构栋栏树桥楼欧歼毕气汇沪浓润涨温游滞"
    "满炉炖点烧热独环现电画盐盘码种积笔篮粤粮红约级纬纳纸线练细经结给络绝统绩续编网罚胜脑节苏苹药获营"
    "装见观规视计订认训议讲设访证评词译试话询误说请读课调负财败货质购贴贵贸资赛赞车转轰载输达过运还这"
    "连选递邮释里钟钱铁铅铢银销错镑长门闭问间阅队静韩页顶项预领频额风飞马骁验麦黄齐龄龙"
)
TRADITIONAL = (
    "萬業東絲兩個為麼樂習書買於雲產億僅從們價優會體餘俠債兒關興茲內冊寫農決淨減幾凱擊劃劉則創劇辦務動"
    "勞區醫華協單賣佔盧歷壓參雙發隻號後員週諮團國圖圓場塊聲處復頭奪獎奧婦學實寬對導將爾層屆歲幣帶幀並"
    "慶應開棄彈當錄徵態總戲戰戶護報擁撥擇據攪攝數鬥時顯機權槓條來構棟欄樹橋樓歐殲畢氣匯滬濃潤漲溫遊滯"
    "滿爐燉點燒熱獨環現電畫鹽盤碼種積筆籃粵糧紅約級緯納紙線練細經結給絡絕統績續編網罰勝腦節蘇蘋藥獲營"
    "裝見觀規視計訂認訓議講設訪證評詞譯試話詢誤說請讀課調負財敗貨質購貼貴貿資賽贊車轉轟載輸達過運還這"
    "連選遞郵釋裡鐘錢鐵鉛銖銀銷錯鎊長門閉問間閱隊靜韓頁頂項預領頻額風飛馬驍驗麥黃齊齡龍"
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
