"""English: words that tell what stands before or after them."""

from __future__ import annotations


def _listed(words: str) -> frozenset[str]:
    """Words with spaces between."""
    return frozenset(words.split())


BOOKS = _listed(
    "genesis exodus leviticus numbers deuteronomy joshua judges ruth samuel kings chronicles ezra "
    "nehemiah esther job psalm psalms proverbs ecclesiastes isaiah jeremiah lamentations ezekiel daniel "
    "hosea joel amos obadiah jonah micah nahum habakkuk zephaniah haggai zechariah malachi matthew mark "
    "luke john acts romans corinthians galatians ephesians philippians colossians thessalonians timothy "
    "titus philemon hebrews james peter jude revelation quran koran surah sura songs gen ex lev deut ps "
    "prov isa jer matt rom cor gal eph phil heb rev"
)
"""Books of scripture, after whose names chapter and verse stand."""

LAWS = _listed(
    "section sections sec § §§ article articles art rule rules clause paragraph para regulation usc s c "
    "subsection chapter schedule cfr code act reg"
)
"""Words after which a number with letters in brackets is a part of a law."""

HEADS = _listed(
    "apartment area bag ball bar battery bet bid bill binge bolt bonus book bottle bounty box bridge "
    "bucket budget burger cable camera can car card cart cheque chip circuit climb cloud coffee coin "
    "commute company contract coupon credit cut cycle dash deal debt delay deposit descent diameter "
    "discount disk display distance dose drive drop economy elevator endowment engine fall fee file film "
    "fine firm flight fund gap gift glass grant gun hammer hat hike hill hole home hose house increase "
    "industry investment invoice jar jog journey jug jump kettlebell kick ladder laptop leap lens lift "
    "limit line loan loop lot marathon margin market meal membership menu mission model monitor mortgage "
    "motor move movie mug nail note offer office package pan pass pause payment payout penalty phone "
    "piece pill pipe pizza plan plank plate pledge plot pool portfolio pot prize program project purchase "
    "race radius raise range rebate reward ride road roll rope round route rug run salary sale sample "
    "screen screw seed settlement shirt shot skillet slot space speed sprint stake startup steak stick "
    "stock stretch string subscription swim tablet tank ticket timer tip tower trail train tree trek "
    "trial trip tube tunnel turn tv valuation video voucher walk wall watch wave wind window wire workout "
    "yard jack brads brad outlet outlets breaker breakers charger chargers adapter adapters socket "
    "fuse circuits "
    "plug bulb bulbs "
    "lamp pot dish wok pizzas steaks dumbbell dumbbells barbell plates weights bowl batteries drill "
    "jar tin "
    "pool tanks buckets bag bags touchscreen panel pipe pipes board boards lumber ruler nail nails "
    "screws bolts "
    "relay freestyle hurdles butterfly breaststroke backstroke final "
    "warranty guarantee lease degree sentence turbo diesel hybrid "
    "gap depth diameter spacing paper margin margins workweek shift shifts"
)
"""Nouns that an amount qualifies even where no article stands before it: ``$2bn deal``."""

NO_NOUNS = _listed(
    "about above across after against ago along already also and apart are around away because been "
    "before behind below between both but can cheaper could deep did does due during each either ends "
    "even ever every far faster for from had has have higher hence here high how however if in including "
    "instead into is just later left less like long longer lower may might minus month more most much "
    "must near never not now off old once only onto ours out over past per plus rather remaining seems "
    "shall she should short since slower so some such than that the their them then there these they this "
    "those though through thus tall till times to today together tomorrow too toward towards under until "
    "up upon versus via was week well went were what when where whereas whether which while who whole "
    "whom why wide will with within without worth would year yesterday yet you your his her its our goes "
    "comes came gets got gives gave given takes took makes made saves saved costs cost paid spent lost "
    "won sold bought owed back down all any another deeper taller wider thick heavy apiece total "
    "altogether extra north south east west straight ahead deducted"
)
"""Words in small letters that an amount before them does not qualify."""

VERSIONED = _listed(
    "v version versions ver release python macos ios ipados android ubuntu debian fedora kernel linux "
    "node php go golang ruby rust java kubernetes django react postgres postgresql mysql cuda driver "
    "firmware build swift kotlin safari chrome firefox gcc clang cmake perl julia scala windows pytorch "
    "tensorflow numpy pandas"
)
"""Words after which two digits after a dot are a number: ``Python 3.12``."""

BEFORE_LABEL = _listed(
    "exit gate room seat apt apartment unit suite section row bus route terminal platform track building "
    "class grade flat figure table page hall block level ward bay locker stand stall form schedule "
    "question exercise problem part step article chapter appendix pier lane door dock line floor"
)
"""Words after which a number with a letter is a name: ``exit 14B``."""

NO_PRODUCTS = _listed("no yes as is on in to of or it we me my he be an do go if so up us by the one two")
"""Short words after a sign of equality that are no product of letters."""

NO_NAMES = _listed(
    "The An This That His Her Start Given By Via Any Each Your My No Use In With And Or For Get"
)
"""Words with a capital after which no Roman number stands."""

BEFORE_ROMAN = _listed(
    "chapter part volume book section act scene appendix article war phase type level bowl title table "
    "artemis apollo ares figure class stage tier episode mark gta saturn fantasy rocky civ "
    "civilization schedule"
)
"""Words after which a Roman number is a number."""

ROYAL = _listed(
    "elizabeth napoleon kaiser tsar ferdinand frederick wilhelm leopold otto constantine justinian "
    "darius xerxes ptolemy seleucus antiochus ramesses rameses seti thutmose umberto alfonso pedro "
    "suleiman selim murad mehmed haakon gustav selassie maximilian basil theodosius cyrus shapur "
    "khosrow afonso boleslaw casimir sigismund stanislaus harald olaf valdemar knut emmanuel joseph "
    "harold edgar edmund rudolf robert stephen"
)
"""Names of rulers that few others have."""

RULERS = ROYAL | _listed(
    "henry george louis charles william edward james richard pope john paul benedict francis king queen "
    "philip nicholas catherine peter alexander sam gregory leo pius clement innocent urban "
    "christian carlos "
    "juan ivan albert mary victoria sixtus adrian boniface"
)
"""Names after which a Roman number is an ordinal."""

PER_WORDS = _listed(
    "second minute hour day week month quarter year night person user seat item piece page share ounce "
    "pound word head guest room token post gallon bag box bottle ticket game call visit class session "
    "case acre ton barrel request device site team agent query image episode child kid student employee "
    "license card tree set lesson ride trip serving meal dose"
)
"""Words of time, people and goods that an amount is for each of."""

NUMBERED = _listed(
    "invoice order ticket case room claim policy locker bus store po flight suite unit apartment booking "
    "confirmation member job part item model bill receipt check issue request table account lot reference "
    "ref train tracking reservation quote"
)
"""Words after which a number with its sign is a name: ``invoice #4821``."""

NO_SUBJECTS = _listed(
    "be is are was were been to of for with if than and or in by within only cure wait hold rest use run "
    "bake cook drink eat sleep store allow leave add take last lasts has have had keep need needs should "
    "must "
    "at by on around over under between per "
    "requires require want get aim stay when while until after before typically usually normally"
)
"""Words after which a sign of comparison has no verb: ``toxic at ≥ 20 mg``."""

MAY_END = _listed(
    "week weeks hours years months center package packages department government each appointment dozen "
    "experience"
)
"""Words of abbreviations that may end a sentence."""

BEFORE_STATUS = _listed("http https error errors status code codes")
"""Words after which three digits are the status of an answer."""

BEFORE_CODE = BEFORE_STATUS | _listed("port ports chmod arxiv doi dial press")
"""Words after which digits are no number of things."""
