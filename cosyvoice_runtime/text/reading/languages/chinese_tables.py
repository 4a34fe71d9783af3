"""Chinese: tables of units, currencies, signs and the words around numbers; all in simplified characters."""

from __future__ import annotations

from cosyvoice_runtime.text.reading.languages.language import Currency, Unit

COUNTS = (
    "个|位|名|人|只|条|张|件|种|样|类|本|台|部|门|句|次|遍|回|倍|辆|套|双|对|份|杯|碗|瓶|盒|袋|箱|包|"
    "片|块|颗|粒|棵|朵|群|球|"
    "组|批|行|页|篇|首|场|项|步|口|头|匹|架|艘|栋|座|间|扇|把|根|支|枝|盏|顶|面|声|顿|餐|笔|幅|道|则|"
    "剂(?!量)|针(?![对灸织])|集(?![合团中体成])|例(?![如外])|副(?![总主校教作职])|帖|幢|"
    "天|年(?!级)|周|星期|"
    "小时|钟头|分钟|秒|点(?![0-9零一二三四五六七八九])|点(?=[0-9]{1,2}分|[0-5][0-9](?![0-9])|[一二三]刻)|刻|元|美元|欧元|"
    "米|厘米|毫米|公里|千米|公斤|千克|斤|克|吨|升|毫升|"
    "岁|度|家|千|万|亿|百|成(?![功员年立本长])|折|者|边|国|地|端|会|趟|轮|股|层楼|段|串|束|排(?!长)|桶|罐|盘|款|处|所|枚|"
    "滴|泡|[大小汤茶]?[勺匙]|大碗|小碗|瓣|卷|节|单(?!元)|"
    "盆|封(?![锁闭])|桩|缸|锅|壶|碟|筐|捆|尊|栏|席|窝|味(?=药|中|调)|代人|班(?=[飞航车岗])|通(?=电话)|出(?=戏)|级台阶|"
    "胜(?![率利任出者过])|负(?![责担荷载面极数债离])|平(?=[0-9])|传(?=[0-9])|射(?![手线击频])|"
    "晚|夜|毛|角|分(?=钱)|尺|寸|平方|立方|英|亩|磅|海里|户|桌|帧|字|票|关|课|局|届|站|圈|拨|堆|摞|路人|字节|兆|赫兹|瓦|伏|安"
)
"""Sources of the words that number two is 两 before."""
AFTER_YEAR = (
    "年(?!级)|届|级|款|版|财年|赛季|学年|高考|中考|考研|国考|省考|春晚|春节|世界杯|欧洲杯|亚运|奥运|"
    "毕业生|新款|秋招|春招|"
    "双十一|双11|世博|冬奥|两会|上半年|下半年|第[一二三四]季|Q[1-4]|H[12](?![0-9])|春季|夏季|秋季|冬季|"
    "春夏|秋冬|暑假|寒假"
)
"""Sources of the words after a year that is read digit by digit."""

CALLED = (
    "报修|专线|订票|会议室|教室|包厢|病房|寝室|宿舍|电话|手机号?码?|热线|传真|拨打?|致电|来电|回电|客服|"
    "联系方式|房间号?|房号|航班号?|车次|短信至?|发送短信到|分机号?|转"
)
"""Words before digits that are read as on the telephone, where one is 幺."""
NUMBERED = (
    "后[0-9四六]位(?:数字?)?|QQ群?号?|微信号?|密码|验证码|校验码|动态码|激活码|兑换码|邀请码|提取码|取件码|取餐码|识别码|"
    "条形码|核销码|口令|门牌号?|"
    "编号|单号|订单号?|账号|帐号|账户|帐户|卡号|学号|工号|尾号|邮编|邮政编码|代码|编码|号码|会议号|统编|"
    "群号|房间ID|ID号?|id|UID|"
    "身份证号?码?|车牌号?|批号|序列号|流水号|档案号|案号|票号|保单号|护照号?|型号|PIN码?|ISBN|ISSN|RTX|"
    "GTX|ISO|IEEE|RFC|SN|IP|端口号?"
)
"""Words before digits that are read one by one."""
NAMED = (
    "骁龙|天玑|麒麟|波音|空客|锐龙|国道|省道|代号|编组|北纬线|阿波罗|保时捷|"
    "Boeing|Airbus|Microsoft|Office|Room|HTTP|Error"
)
"""Words before a number of three or four digits that names something."""
ENGLISH_COUNTED = (
    "(?:[Mm]inute|[Hh]our|[Dd]ay|[Ww]eek|[Mm]onth|[Yy]ear|[Ss]econd|Step|Star)s?|Ways|Things|Habits|"
    "Tips|Rules|Reasons|Lessons|Laws|Questions|Secrets|Principles|Facts|Feet|Miles|Men|Women|People|Words|"
    "Ideas|eggs|cloves|slices|servings|reps"
)
"""Sources of the English words whose number is said in English."""
MODELS = (
    "(?:Pro|Max|Plus|Ultra|Mini|Air|Lite|Turbo|Core|Gen|Series|Edition|Sonnet|Opus|Haiku|Flash|Long|Home|Server|"
    "Mark|Note|Fold|Flip|Slim|Preview|Instruct|Base|Standard|Super|Performance|Elite|Neo|Active)(?![a-z])"
)
"""Source of the words in names of models, whose number is said in Chinese."""
DATED = (
    "日期|时间|生日|截止|截至|定于|改到|改期|"
    "期间|期限|隔年|次年|翌年|今年|明年|去年|国庆|元旦|春节|清明|端午|中秋|劳动节|假期|长假|"
    "推迟到|提前到|有效期至?|发布于|创建于|更新于|周[一二三四五六日天]|星期[一-日天]"
)
"""Words before numbers that are a date."""
DIGIT_NAMES = (
    "985",
    "211",
    "996",
    "618",
    "315",
    "404",
    "520",
    "1314",
    "007",
    "12306",
    "12315",
    "863",
    "911",
    "666",
    "10086",
    "10010",
    "9527",
)
"""Numbers that everybody says digit by digit where they count nothing."""
TEAMS = (
    "中国|日本|韩国|朝鲜|巴西|阿根廷|德国|法国|英国|英格兰|西班牙|意大利|葡萄牙|荷兰|比利时|克罗地亚|"
    "摩洛哥|沙特|澳大利亚|美国|"
    "俄罗斯|瑞典|瑞士|丹麦|波兰|乌拉圭|伊朗|卡塔尔|泰国|国足|女足|女排|男篮|皇马|巴萨|曼联|曼城|利物浦|"
    "切尔西|阿森纳|热刺|"
    "拜仁|多特|尤文|米兰|国米|拉齐奥|罗马|巴黎|湖人|勇士|火箭|凯尔特人|热火|公牛|国安|申花|泰山|恒大|"
    "广东|辽宁|主队|客队|队"
)
"""Names of teams, before or after a result."""
WON = (
    "领先|落后|战胜|击败|取胜|获胜|大胜|小胜|完胜|横扫|逆转|战平|"
    "负于|不敌|告负|惜败|胜|负|平|赢|输|淘汰|力克|险胜"
)
"""Words after a result."""
RATED = (
    "评分|得分|打分|评级|分数|成绩|满分|推荐指数|推荐度|好评|豆瓣|评价|难度|口味|服务|环境|星级|指数|给|打"
)
"""Words before a mark out of a total."""

TAIWAN = "元新台币"
"""The New Taiwan dollar, whose name is said before the amount: 新台币六百元."""
_DOLLARS = {
    "": "美元", "US": "美元", "HK": "港元", "A": "澳元", "AU": "澳元", "C": "加元", "CA": "加元",
    "NT": TAIWAN,
    "NZ": "新西兰元", "S": "新加坡元", "SG": "新加坡元", "R": "雷亚尔",
}  # fmt: skip
_CURRENCIES = {
    "¥": "元", "CN¥": "元", "JP¥": "日元", "€": "欧元", "£": "英镑", "₩": "韩元", "₹": "卢比",
    "₽": "卢布", "฿": "泰铢",
    "₫": "越南盾", "₿": "比特币", "USD": "美元", "EUR": "欧元", "GBP": "英镑", "JPY": "日元",
    "CNY": "人民币",
    "RMB": "人民币", "HKD": "港元", "TWD": TAIWAN, "NTD": TAIWAN, "KRW": "韩元", "AUD": "澳元",
    "CAD": "加元",
    "SGD": "新加坡元", "NZD": "新西兰元", "INR": "卢比", "RUB": "卢布", "CHF": "瑞士法郎", "THB": "泰铢",
    "MYR": "林吉特", "VND": "越南盾", "BTC": "比特币", "MOP": "澳门元", "USDT": "USDT",
}  # fmt: skip
CURRENCIES = {
    sign: Currency(word, word)
    for sign, word in {**_CURRENCIES, **{f"{letters}$": word for letters, word in _DOLLARS.items()}}.items()
}

_UNITS = {
    "mm": "毫米", "cm": "厘米", "dm": "分米", "m": "米", "km": "公里", "µm": "微米", "nm": "纳米",
    "mg": "毫克",
    "g": "克", "kg": "千克", "KG": "千克", "Kg": "千克", "µg": "微克", "mcg": "微克", "t": "吨",
    "lb": "磅", "lbs": "磅",
    "oz": "盎司", "ml": "毫升", "mL": "毫升", "ML": "毫升", "L": "升", "dL": "分升", "dl": "分升",
    "ms": "毫秒",
    "µs": "微秒", "ns": "纳秒", "s": "秒", "sec": "秒", "min": "分钟", "mins": "分钟", "h": "小时",
    "hr": "小时",
    "hrs": "小时", "kWh": "千瓦时", "Wh": "瓦时", "mAh": "毫安时", "Ah": "安时", "dB": "分贝", "Hz": "赫兹",
    "kHz": "千赫兹", "KHz": "千赫兹", "MHz": "兆赫兹", "GHz": "吉赫兹", "THz": "太赫兹", "V": "伏",
    "mV": "毫伏",
    "kV": "千伏", "W": "瓦", "mW": "毫瓦", "kW": "千瓦", "KW": "千瓦", "MW": "兆瓦", "GW": "吉瓦",
    "A": "安",
    "mA": "毫安", "Pa": "帕", "kPa": "千帕", "hPa": "百帕", "MPa": "兆帕", "N": "牛", "J": "焦",
    "kJ": "千焦",
    "cal": "卡", "kcal": "千卡", "Kcal": "千卡", "Ω": "欧", "kΩ": "千欧", "mol": "摩尔", "mmol": "毫摩尔",
    "µmol": "微摩尔", "bpm": "次每分钟", "rpm": "转每分", "fps": "帧每秒", "FPS": "帧每秒",
    "Mbps": "兆比特每秒",
    "Gbps": "吉比特每秒", "kbps": "千比特每秒", "Kbps": "千比特每秒", "px": "像素", "ppm": "ppm",
    "mmHg": "毫米汞柱",
    "m2": "平方米", "m²": "平方米", "km2": "平方千米", "km²": "平方千米", "cm2": "平方厘米",
    "cm²": "平方厘米",
    "mm²": "平方毫米", "m3": "立方米", "m³": "立方米", "cm3": "立方厘米", "cm³": "立方厘米",
    "m^2": "平方米",
    "m^3": "立方米", "℃": "摄氏度", "°C": "摄氏度", "℉": "华氏度", "°F": "华氏度", "°": "度", "ha": "公顷",
    "in": "英寸", "ft": "英尺", "mph": "英里每小时", "cc": "毫升", "c.c.": "毫升", "IU": "国际单位",
    "ug": "微克",
    "um": "微米",
    "N·m": "牛米", "J·s": "焦秒", "Pa·s": "帕秒", "mPa·s": "毫帕秒", "N·s": "牛秒",
    "V·A": "伏安", "A·h": "安时", "mA·h": "毫安时", "J/(mol·K)": "焦每摩尔开",
    "N·m²/kg²": "牛平方米每平方千克", "atm": "标准大气压", "eV": "电子伏", "keV": "千电子伏",
    "MeV": "兆电子伏", "GeV": "吉电子伏", "GPa": "吉帕", "kN": "千牛", "MJ": "兆焦", "pF": "皮法",
    "nF": "纳法", "µF": "微法", "mH": "毫亨", "µH": "微亨", "MΩ": "兆欧", "mΩ": "毫欧",
    "lm": "流明", "lx": "勒克斯",
        "J/(kg·℃)": "焦每千克摄氏度", "J/(kg·K)": "焦每千克开",
    "W/(m·K)": "瓦每米开", "ng": "纳克", "pg": "皮克", "U/L": "单位每升", "pt": "磅",
    "kW·h": "千瓦时", "W·h": "瓦时",
    "bytes": "字节", "bits": "比特", "dpi": "dpi", "GB": "GB", "MB": "MB", "KB": "KB", "TB": "TB",
}  # fmt: skip
UNITS = {
    written: Unit(word, word) for sign, word in _UNITS.items() for written in {sign, sign.replace("µ", "μ")}
}
PER_UNITS = {
    **{sign: unit for sign, unit in UNITS.items() if not sign.endswith("B") and sign not in ("in", "A", "N")},
    **{sign: Unit("平方秒", "平方秒") for sign in ("s²", "s2", "s^2")},
    "d": Unit("天", "天"), "day": Unit("天", "天"), "month": Unit("月", "月"), "year": Unit("年", "年"),
    **{word: Unit(word, word) for word in ("秒", "分钟", "小时", "天", "日", "周", "月", "年", "人", "次")},
}  # fmt: skip
IN_RATES = {"GB": "吉字节", "MB": "兆字节", "KB": "千字节", "TB": "太字节"}
"""Amounts of data have words before a stroke; alone their letters are said."""
SINGLE_LETTERS = frozenset(sign for sign in UNITS if len(sign) == 1 and sign.isalpha() and sign.isascii())
WORDS = ("in", "t", "cal", "A", "ha")
"""Units that count only right after their number."""

SIGNS = {
    ".": "点", "/": "斜杠", "-": "杠", "_": "下划线", "@": "艾特", "?": "问号", "=": "等于", "&": "和",
    "#": "井号",
    "%": "百分号", "+": "加", "~": "波浪号", ":": "冒号", "\\": "反斜杠",
}  # fmt: skip
OPERATIONS = {
    "+": "加", "-": "减", "−": "减", "–": "减", "=": "等于", "==": "等于", "×": "乘", "✕": "乘",
    "*": "乘", "x": "乘",
    "X": "乘", "÷": "除以", "/": "除以", "<": "小于", ">": "大于", "≈": "约等于", "≠": "不等于",
    "!=": "不等于",
    "≤": "小于等于", "<=": "小于等于", "≥": "大于等于", ">=": "大于等于", "±": "正负", "√": "根号",
    "→": "到", "·": "乘", "⋅": "乘",
}  # fmt: skip
MENUS = (
    "设置|设定|档案|检视|菜单|点击|点开|打开|进入|选择|依次|前往|文件|编辑|视图|工具|控制面板|偏好|首页|我的|选项|路径|"
    "Settings|File|Edit|View|Tools|Preferences|System|General|Options"
)
"""Words before the way through the menus of a program."""
PLATES = "京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼"
"""The first characters of the plates of cars."""
