"""Chinese in two scripts: rules see simplified characters, their words come in the script of the text."""

from __future__ import annotations

import re

_PAIRS = (
    "萬万 與与 業业 東东 絲丝 兩两 個个 為为 爲为 舉举 烏乌 習习 於于 雲云 亞亚 產产 畝亩 億亿 "
    "僅仅 從从 價价 衆众 眾众 會会 傳传 餘余 兌兑 蘭兰 關关 茲兹 減减 幾几 凱凯 擊击 劃划 則则 "
    "創创 別别 製制 務务 動动 勢势 區区 醫医 昇升 華华 單单 盧卢 歷历 曆历 壓压 釐厘 廂厢 雙双 "
    "發发 變变 隻只 臺台 枱台 颱台 號号 後后 噸吨 週周 諮咨 園园 國国 圖图 場场 塊块 壇坛 聲声 "
    "處处 頭头 奧奥 學学 寧宁 寶宝 寬宽 寢寝 對对 壽寿 爾尔 層层 屆届 歲岁 峯峰 幣币 佈布 帳帐 "
    "幀帧 廣广 開开 張张 當当 錄录 態态 總总 恆恒 戰战 戶户 掃扫 搶抢 護护 報报 撥拨 揮挥 換换 "
    "攝摄 敵敌 數数 斷断 時时 顯显 晉晋 機机 槓杠 條条 來来 盃杯 鬆松 標标 棟栋 樣样 檔档 樓楼 "
    "橫横 歐欧 畢毕 匯汇 滬沪 潤润 漲涨 溫温 滿满 點点 熱热 狀状 貓猫 璣玑 環环 瓊琼 電电 畫画 "
    "盞盏 盤盘 碼码 禮礼 種种 筆笔 籃篮 類类 粵粤 係系 約约 級级 緯纬 純纯 納纳 線线 組组 經经 "
    "結结 給给 統统 績绩 續续 維维 編编 縮缩 網网 羅罗 羣群 職职 聯联 勝胜 節节 蘇苏 薦荐 獲获 "
    "薩萨 錶表 見见 視视 計计 訂订 議议 論论 證证 証证 評评 識识 訴诉 話话 詢询 誤误 請请 讀读 "
    "課课 調调 貝贝 負负 財财 敗败 賬账 質质 購购 貴贵 貸贷 費费 賠赔 賺赚 賽赛 贊赞 贏赢 贛赣 "
    "車车 轉转 輪轮 載载 輛辆 輸输 邊边 遼辽 達达 過过 運运 進进 遲迟 郵邮 釋释 裡里 裏里 鐘钟 "
    "錢钱 銖铢 銀银 銷销 鋭锐 錯错 鎊镑 長长 門门 問问 間间 閩闽 閲阅 閱阅 隊队 陰阴 際际 陝陕 "
    "險险 難难 麵面 麪面 韓韩 頁页 頂顶 頃顷 項项 顧顾 頓顿 領领 頻频 顆颗 題题 額额 馬马 驍骁 "
    "驗验 魯鲁 鮮鲜 麥麦 黃黄 齊齐 龍龙 獎奖 屬属 並并 併并 無无 窮穷 絕绝 資资 槍枪 員员 階阶 "
    "驟骤 監监 聽听 佔占 將将 訪访 現现 響响 應应 設设 選选 擇择 輯辑 檢检 徑径 連连 觀观 鐵铁 灣湾 "
    "專专 慶庆 湯汤 紀纪 認认 說说 罰罚 語语 寫写 綜综 預预 "
)
"""Characters of the words around numbers: a traditional one and its simplified form."""
_ALSO_TRADITIONAL = "里台周余后杯表系面升厘布别制松并占"
"""Simplified forms that traditional texts have, too."""
SIMPLIFIED = str.maketrans({**{pair[0]: pair[1] for pair in _PAIRS.split()}, "\N{FRACTION SLASH}": "/"})
"""The character that rules see in place of another."""
_TRADITIONAL = str.maketrans(
    {pair[1]: pair[0] for pair in reversed(_PAIRS.split()) if pair[1] not in _ALSO_TRADITIONAL} | {"幺": "一"}
)
"""Where these characters are written, one is 一 on the telephone, too."""
_KILOGRAM = re.compile("[kK][gG]")
_HAN = re.compile("[\u3400-\u9fff]+")
_SENTENCE_END = re.compile(r"[。！？；?!;\n]|\.(?![0-9A-Za-z])|[：、:](?!\s*[0-9])")
_FULL_STOP = re.compile(r"[。！？?!\n]")
_REACH = 40
"""Characters on each side of a place that tell the script of its sentence."""


def in_script_of(text: str, start: int, end: int, words: str) -> str:
    """Words for ``text[start:end]`` in simplified characters, made traditional if most of its sentence is.

    A script's characters are those of its national standard: Big5 or GB 2312. A ``kg`` has the name that
    Taiwan and Hong Kong use: 公斤.
    """
    traditional, simplified = _lengths(text, end, _SENTENCE_END)
    if traditional == simplified:
        traditional, simplified = _lengths(text, end, _FULL_STOP)
    if traditional <= simplified:
        return words
    if _KILOGRAM.search(text, start, end):
        words = words.replace("千克", "公斤")
    return words.translate(_TRADITIONAL)


def _lengths(text: str, place: int, end: re.Pattern[str]) -> tuple[int, int]:
    """How much of what stands around a place is traditional and how much simplified, in bytes."""
    before = end.split(text[max(0, place - _REACH) : place])[-1]
    after = end.split(text[place : place + _REACH], maxsplit=1)[0]
    characters = "".join(_HAN.findall(before + after))
    return len(characters.encode("big5", "ignore")), len(characters.encode("gb2312", "ignore"))
