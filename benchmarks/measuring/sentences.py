"""Built-in texts, Chinese and English, from a few words to a paragraph."""

from __future__ import annotations

SENTENCES = {
    "en_words": "Good morning, everyone.",
    "en_short": "The train to the coast leaves from platform four.",
    "en_number": "Your order of 3 books costs $42.50 and arrives on May 21st.",
    "en_question": "Could you tell me whether the library is still open on Sunday afternoons?",
    "en_long": (
        "When the rain finally stopped, the children ran out into the garden, counted the snails on the old "
        "stone wall, and forgot that dinner had been waiting for them for almost an hour."
    ),
    "en_paragraph": (
        "Most people who learn to bake bread begin with a recipe and end with a habit. At first they weigh "
        "everything twice. Later they trust their hands, which know how the dough should feel on a cold "
        "morning. The oven is the last teacher: it forgives a little, and it never explains."
    ),
    "zh_words": "早上好。",
    "zh_short": "今天下午三点在会议室见面。",
    "zh_number": "这件衣服原价299元，现在打八折。",
    "zh_question": "请问从这里走到火车站大概需要多长时间？",
    "zh_long": "雨停了以后，孩子们跑到花园里，数着老石墙上的蜗牛，完全忘记了晚饭已经等了他们快一个小时。",
    "zh_paragraph": (
        "学做面包的人，大多从一张食谱开始。起初每样东西都要称两遍，后来手就记住了面团在冬天早晨该有的样子。"
        "烤箱是最后一位老师，它会原谅一点小错，却从来不作解释。"
    ),
    "mixed": "请打开 Wi-Fi 设置，然后选择 Guest Network。",
}
