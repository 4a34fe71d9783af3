"""Chinese in traditional characters is read as the same in simplified ones, and its words are traditional."""

from __future__ import annotations

import pytest
from test_cases import CASES, cases

from cosyvoice_runtime.text.normalise import Normaliser

SIMPLIFIED = (
    "万业东丝两个为书买于亿们价会体余儿关兹内写决减几办务动华协单卖卢历压参双发号吃后员周咨国图圆场处"
    "头奥学宽导尔届岁币带帧床开弹当征态戏战护报拨摄数时显机杠来构栋树楼欧歼毕气汇沪浓润涨温游满点热现"
    "电画码种积粤约级纬纸线经结给络统编网群胜节苹获营见视计订认议证评词话询误说请课负财货购赛车转轰载"
    "达过运这选递邮释里钟钱铢银销错镑长门闭间队韩页项领频风骁验齐龄龙"
)
TRADITIONAL = (
    "萬業東絲兩個爲書買於億們價會體餘兒關茲內寫決減幾辦務動華協單賣盧歷壓參雙發號喫後員週諮國圖圓場處"
    "頭奧學寬導爾屆歲幣帶幀牀開彈當徵態戲戰護報撥攝數時顯機槓來構棟樹樓歐殲畢氣匯滬濃潤漲溫遊滿點熱現"
    "電畫碼種積粵約級緯紙線經結給絡統編網羣勝節蘋獲營見視計訂認議證評詞話詢誤說請課負財貨購賽車轉轟載"
    "達過運這選遞郵釋裡鐘錢銖銀銷錯鎊長門閉間隊韓頁項領頻風驍驗齊齡龍"
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
