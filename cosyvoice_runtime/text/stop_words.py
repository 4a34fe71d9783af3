"""Words, letters and endings that tell the languages of Europe from each other and from English."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


_WORDS = {
    "en": """the and of to in is was for with on at by it its this that these those you your he she
        his her they their we our i my me are be been has have had do does did not no but or if
        from as an a will would can could should what when where which who how why there here
        all one about into over after before please hello thanks just then than so because more
        most some any get got let make need want won new up out times day days year years may
        march august am men pm miles people old first last next back only also each per
        between during until since ago price cost costs dollars cents hours minutes weeks
        months score scored met ate paid bought sold left goes went says said owes meet
        opens closes close train flight room page chapter version versions dear yes okay sorry time
        good great big small high low long short two three four five six seven eight nine ten
        cup cups game games third ministers add mix use water cats dogs cat dog phone call send buy
        see go come take give find know think say tell work works home house street road city
        song movie book order free off under above below around almost nearly less least
        every many much few both same other another such even still very too really right wrong
        born died king queen age aged inches feet pounds steps list number numbers answer
        question example january february april june july september october november december
        monday tuesday wednesday thursday friday saturday sunday jan mon tue wed thu fri sun
        world war due part sept ton era solo camera tag stock alter butter person pro gut tore
        sale me son pour sin pan real prima latte piano com liter meter mile per
        inch foot cet arrive depart location locations est non etc todo fix zero man woman women boy girl
        pp vol significance
        level heat oil olive foot
        rent labor limits
        euros percent million billion o'clock i'm i've i'll you're it's don't can't that's let's
        won't isn't what's we're they're""",
    "de": """ich du er wir ihr nicht und oder aber das ist sind ein eine einen einem einer des dem
        den mit auf von zu zum zur im ins am um bei nach aus auch noch nur wie wenn weil dass
        haben habe hat hatte wird werden wurde wurden kann können bitte heute morgen gestern mehr
        sehr schon mein meine dein sein seine ihre uns euch mir dir sich es gibt geht kommt kostet
        uhr jahr jahre jahren tage tagen sie als vom beim bis seit hallo danke bzw stunden minuten
        prozent jahrhundert hier rund davon sowie etwa für über unter zwischen leben war waren
        mio mrd tsd usw ggf evtl inkl zzgl nr std januar februar märz mai juni juli oktober
        dezember montag dienstag mittwoch donnerstag freitag samstag sonntag der die pro je ab an
        in so also was man will hatten soll sollte muss müssen darf wo wer warum welche welcher
        jede jeder jedes alle alles kein keine keinen liegt steht macht beträgt betragen dauert
        fährt bekommt zeigt wiegt läuft spielt spielte schrieb schreibt kaufte gewann ging kam
        gewonnen verloren gegen ohne durch während wegen statt damit dann denn doch mal immer
        wieder weniger mindestens höchstens ungefähr knapp gut neue neuen neuer ersten letzten
        erste letzte zweite dritte mehl eier wasser salz zucker butter milch zwiebeln liste
        preis sahne hefe käse prise rabatt stück tage nacht nächte abfahrt ankunft
        gewicht höhe breite länge halbzeit päckchen portionen zutaten backpulver kartoffeln
        lebte lange zeichen passwort kosten strecke zug
        gleis seite kapitel absatz paragraf artikel zimmer etage stock
        hunde hund katzen katze äpfel kinder menschen leute personen einwohner besucher platz
        woche wochen monat monate monaten tag stunde sekunden euro grad meter liter million
        millionen milliarde milliarden tausend hundert eins zwei drei vier fünf sechs sieben acht
        neun zehn elf zwölf buch bücher straße haus hause herr frau lieber liebe viele grüße
        geboren starb gestorben termin rechnung konto betrag summe gesamt temperatur wetter
        spiel tor tore punkte punkt verein mannschaft esslöffel teelöffel prise gramm rezept
        schritt fehler geburtstag wohnung wurde telefon rufen gilt laut circa zirka bereits sofort
        fläche satz beispiel dreieck kreis formel umfang lösung probe ergebnis gesucht gegeben rechnung
        bund packung päckchen prise würfel tasse esslöffel el tl pck msp zwiebel apfel chr jh hbf minute
        endete siegte verlor schlug traf besiegte startet beginnt erscheint erschien zoll folgen staffeln
        monatlich täglich verfügbar laufzeit auflösung arbeitsspeicher speicher bildschirm akku gewicht
        mo di mi fr wdh std sek gesamtkosten lesen liste öffnungszeiten feiertage geschlossen zeit
        mama papa ja nein okay gerne klar frage antwort zutaten alter
        ofen backofen abs hbf geht's gibt's
        bestellnummer kundennummer rechnungsnummer kaffee
        auto verbraucht morgens mittags abends nachts rufnummer wechselkurs dauer fsk endstand erstens
        zweitens drittens gesamtbetrag kontostand ergebnis unser unsere unserem
        lautet entspricht
        formel meile meilen modell version gleichung dazu hinzu vorher nachher gib nimm füge rühre
        schneide hacke""",
    "es": """el los las una y en es por para con que del al lo se su sus mi tu yo ella ellos nosotros
        pero como muy ya hay hoy mañana ayer tengo tiene tienes tienen quiero puedo puede son fue
        era estoy está están este esta estos estas ese esa eso cuando donde si no más también hola
        gracias a de la un le les nos años año días día cuesta cuestan desde hasta sobre todo todos
        toda horas hora siglo millones mil enero febrero marzo abril mayo junio julio agosto
        septiembre octubre noviembre diciembre lunes martes miércoles jueves viernes sábado domingo
        ni sin entre cada según durante antes después menos casi solo aquí ahora siempre
        nunca uno dos tres cuatro cinco seis siete ocho nueve diez cien euros pesos dólares por
        ciento minutos segundos semanas semana meses mes vez veces kilos metros kilómetros grados
        gatos perros huevos harina azúcar sal agua leche aceite cebolla cucharada cucharadas taza
        tazas precio cuenta página capítulo calle piso habitación vuelo tren cita reunión personas
        habitantes gente niños ganó perdió nació murió compré compró vive viven llega sale abre
        cierra pesa mide necesito necesitas añade mezcla tarda llamar llamó horario incluido méxico
        véase pág págs dura
        señor señora
        buenos buenas tardes noches vale claro sí respuesta pregunta libro libros casa
        ciudad país mundo partido gol goles iva equipo primera primero segundo tercer última temperatura
        receta ingredientes horno hace hacia eran han he has ha hemos fueron tenía nuestro nuestra""",
    "fr": """les une et est dans pour par sur avec que qui des du au aux ce cet cette ces je tu il
        elle nous vous ils elles mon ma mes ton sa ses notre votre leur leurs ne pas mais ou où donc
        très plus moins aussi bien oui non merci bonjour suis es sont était ont avons avez fait
        être avoir j'ai c'est d'un d'une qu'il n'est s'est l'an le de la un en se si ans an jours
        jour depuis quand comme tout tous toute aujourd'hui demain hier coûte coûtent à rendez
        heures heure siècle janvier février mars avril mai juin juillet août septembre octobre
        novembre décembre lundi mardi mercredi jeudi vendredi samedi dimanche entre jusqu'à sans
        sous chez vers après avant pendant environ chaque deux trois quatre cinq sept huit neuf dix
        cent mille euros dollars minutes secondes semaine semaines mois année années fois kilos
        mètres kilomètres degrés chats chiens œufs farine sucre sel eau lait huile beurre oignon
        cuillère cuillères tasse prix page chapitre rue étage chambre vol train réunion personnes
        habitants gens enfants gagné perdu né mort acheté habite arrive part ouvre ferme pèse
        mesure ajoutez mélangez dure appelez appeler installez fonction vaut octets octet tél horaires
        horaire ttc tva ht puis lancez ouvrez cliquez
        choisissez
        version monsieur madame salut bonsoir voici voilà
        réponse question livre livres maison ville pays monde match but buts équipe première
        premier deuxième four étape dernière température recette ingrédients il a y ai as va faut peut sera
        il n'y l'addition etc mme mlle c'était qu'elle ils étaient nos vos cela ça""",
    "it": """il lo gli i uno una e è di da con su per tra fra che chi non ma anche ho hai ha abbiamo
        avete hanno sono sei siamo era mi ti si ci vi suo sua loro questo questa quello quella
        del della dei delle dello degli al alla ai alle dal dalla nel nella nei sul sulla come
        quando dove perché più molto oggi domani ieri ciao grazie anni anno giorni giorno costa
        costano tutto tutti la le un se ore ora secolo milioni gennaio febbraio marzo aprile maggio
        giugno luglio settembre ottobre novembre dicembre lunedì martedì mercoledì giovedì venerdì
        sabato domenica in a o né senza verso dopo prima durante circa ogni due tre quattro cinque
        sette otto nove dieci cento mille euro dollari minuti secondi settimana settimane mesi mese
        volta volte chili metri chilometri gradi gatti cani uova farina zucchero sale acqua latte
        olio burro cipolla cucchiaio cucchiai tazza prezzo pagina capitolo piano camera volo
        treno riunione persone abitanti gente bambini vinto perso nato morto comprato vive arriva
        parte apre chiude pesa misura aggiungi mescola dura chiama chiamare furono certo bastano segnato
        re orario seduta
        funzione chiamate scrivete risultato
        totale vedi abita
        pag ecc signor signora
        buongiorno buonasera ecco risposta domanda libro libri casa città paese mondo partita gol iva
        squadra prima primo seconda secondo ultima temperatura ricetta ingredienti passo forno totale
        c'è un'ora l'ora dell'anno all'ora sig fino meno solo già ancora stato stata dall'""",
    "pt": """o os um uma e em é para por com que do da dos das no na nos nas ao aos à às se seu sua
        meu minha eu você ele ela nós eles não mas como muito já há hoje amanhã ontem tenho tem têm
        temos são foi era estou está este esta isso isto quando onde mais também olá obrigado
        obrigada anos ano dias dia custa custam desde até sobre tudo todos de a pelo pela reais
        horas hora século milhões mil janeiro fevereiro março abril maio junho julho agosto setembro
        outubro novembro dezembro segunda terça quarta quinta sexta sábado domingo feira ou nem sem
        entre cada durante antes depois menos quase só aqui agora sempre nunca dois duas três quatro
        cinco seis sete oito nove dez cem euros dólares minutos segundos semanas semana meses mês
        vez vezes quilos metros quilômetros graus gatos cães ovos farinha açúcar sal água leite óleo
        manteiga cebola colher colheres xícara xícaras preço conta página capítulo rua andar quarto
        voo trem consulta reunião pessoas habitantes gente crianças ganhou perdeu nasceu morreu
        comprei comprou mora vive chega sai abre fecha pesa mede preciso precisa adicione misture
        demora ligar ligue segundo estudo brasileiros vagas restam dormem placar foram reis horário
        fechada sessão chance venceu diante torcedores
        ver pág dura voo apto senhor senhora bom boa tarde
        noite resposta pergunta livro livros casa
        cidade país mundo jogo gol gols time primeira primeiro terceiro última temperatura receita
        ingredientes passo forno obras vai faz seus suas nosso nossa pode quero""",
    "nl": """de het een en van is dat op te in zijn voor met niet aan er om ook als maar dan zij bij
        nog wel geen ik je hij wij ze naar uit deze worden heeft hebben kan door over euro uur
        dag jaar januari onze onder tussen""",
    "da": """og i at det er en den til på som de med han af for ikke der var mig sig men et har om vi
        havde ham hun nu over da fra du ud sin dem os op hans hvor kr dag""",
    "sv": """och i att det som en på är av för med den till inte har de ett om men var jag vi så han
        från kan när du hon nu alla efter upp också vid där""",
    "pl": """i w nie na z że do to jest się jak ale po co za tak od tylko jego o już czy są był dla
        ma przez""",
    "cs": """a je se na v to že s z do o ale jak za by jsem byl jsou pro tak co po ne k až nebo má""",
    "tr": """ve bir bu için ile de da çok ne ben sen daha gibi var yok mi kadar sonra""",
    "hu": """a az és egy nem hogy van is meg ez de már csak ha volt el""",
    "fi": """ei se että en hän oli mutta ovat kun niin joka myös""",
    "ca": """els amb és per a la el i que una un no són les del dels aquest""",
    "ro": """și de la în cu pe nu este un o care din că mai sa se al ale sunt fost pentru""",
    "id": """yang dan di ini itu dengan untuk tidak dari dalam akan pada juga saya ke karena ada kami
        bisa adalah""",
}  # fmt: skip
READ = frozenset({"en", "de", "es", "fr", "it", "pt", "ru"})
"""Languages whose numbers are read; others only keep their texts from being taken for these."""
_NOT_ENGLISH = ("de", "es", "fr", "it", "pt")
_NAMES = _listed("de la le du da do des del los las el di von der die van den dos das al il et est san")
"""Words that names of people and places have in English, too."""
_PARTICLES = re.compile(
    r"\b(?:[Vv][ao]n (?:de[rmn]? )?|[Dd]e (?:l[ao]s? |el )|"
    r"(?:[Dd][aeiou]|[Dd]e[ls]|[Dd]os|[Ee]l|[Ll][aeo]s?|[Ii]l|[Aa]l|San) )(?=[A-ZÁÉÍÓÚÄÖÜ])"
)
"""Small words in front of names, which say little."""
_LOANS = _listed(
    """café cafés naïve façade résumé résumés déjà fiancé fiancée cliché touché crème brûlée señor señora
    señorita jalapeño jalapeños piñata piñatas döner über doppelgänger exposé sauté sautéed purée soufflé
    entrée protégé matinée pâté niño mañana décor rosé bébé tennis
    min hr sec mg kg km cm mm ml vol h m g l t c"""
)
"""Words of English that have letters of others."""
_LETTERS = {
    "ß": {"de": 2.0}, "ä": {"de": 1.0, "sv": 0.6, "fi": 0.4}, "ö": {"de": 1.0, "sv": 0.6, "hu": 0.4},
    "ü": {"de": 1.0, "tr": 0.4, "hu": 0.4}, "ñ": {"es": 1.2}, "¿": {"es": 2.0}, "¡": {"es": 2.0},
    "ã": {"pt": 1.2}, "õ": {"pt": 1.2}, "œ": {"fr": 1.2}, "ç": {"fr": 0.7, "pt": 0.7},
    "é": {"fr": 0.6, "es": 0.4, "pt": 0.4}, "è": {"fr": 0.7, "it": 0.5}, "ê": {"fr": 0.6, "pt": 0.5},
    "à": {"fr": 0.5, "it": 0.5, "pt": 0.3}, "ô": {"fr": 0.6, "pt": 0.4}, "û": {"fr": 0.8},
    "î": {"fr": 0.8}, "ï": {"fr": 0.4}, "ë": {"fr": 0.4}, "â": {"fr": 0.5, "pt": 0.4},
    "ù": {"it": 0.8, "fr": 0.4}, "ò": {"it": 0.9}, "ì": {"it": 0.9}, "á": {"es": 0.6, "pt": 0.6},
    "í": {"es": 0.7, "pt": 0.5}, "ó": {"es": 0.7, "pt": 0.4}, "ú": {"es": 0.6, "pt": 0.5},
    "å": {"sv": 1.5}, "ø": {"da": 1.5}, "æ": {"da": 1.0},
    **{
        letter: {language: 1.5}
        for language, letters in {
            "pl": "łśźćęąż", "cs": "čěřůžšďťň", "tr": "şğı", "hu": "őű", "ro": "ășț",
            "vi": "ạảấầẩẫậắằẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹđươ",
        }.items()
        for letter in letters
    },
}  # fmt: skip
"""Letters of words that are listed nowhere, and what each says of the language."""
_SHAPES = {
    "en": "[a-z]{2,}ing|[a-z]{3,}(?:ly|ness|ful|ght|tions?|ical|less|ship|ity)|"
    "[a-z]*(?:th|wh|ow|oo[a-z]|sh|ck)[a-z]*",
    "de": "[a-zäöü]{3,}(?:ung|ungen|heit|keit|schaft|lich(?:e[nrms]?)?|isch(?:e[nrms]?)?|ieren|ierte?n?|"
    "straße|zahl)|[a-zäöü]*(?:sch(?!ool|ed|em|ol)|cht|pf)[a-zäöü]+|ge[a-zäöü]{4,}(?:en|t)|"
    "(?:ver|ein|aus|auf|vor)[a-zäöü]{4,}en",
    "es": "[a-záéíóúñ]{2,}(?:ción|ciones|idad|idades|amiento|iendo|aron|ieron|ado|ados|illo|ía|ías)|"
    "ll[a-z]+",
    "fr": "[a-zé]{2,}(?:tions?|eaux?|eux|euses?|iques|aires?|oire|eurs|ées?|aient|ette|illes?)|"
    "(?:[lcdjmnst]|qu)'[a-zàâéèêœî]+",
    "it": "[a-z]{2,}(?:zion[ei]|ità|mento|menti|ezza|ggi[oa]|etti|etto|etta|issim[oaie])|"
    "[a-z]*(?:gli|cch|zz|cqu)[a-z]+|(?:l|un|d|c|dell|all|dall|nell|sull|quell|dov)'[a-zàèéìòù]+",
    "pt": "[a-zà-ú]{2,}(?:ção|ções|ão|ões|idades?|agem|inh[oa]s?|ou|eir[oa]s?|ados?)|[a-z]*(?:nh|lh)[a-z]+",
}  # fmt: skip
"""Forms of words that are listed nowhere: endings, beginnings and letters in a row."""
_ENDS = {
    "de": "[a-zäöü]{3,}(?:en|em)", "es": "[a-zñáéíóú]{3,}[oa]s?", "fr": "[a-zéè]{3,}(?:ez|ais|ait)",
    "it": "[a-z]{3,}[oaiàùò]", "pt": "[a-zãçéêóá]{3,}[oa]s?",
}  # fmt: skip
"""Ends of small words that are frequent in a language, and not rare in others."""
_OF_SHAPE, _OF_END = 0.6, 0.25
_ENGLISH_END = re.compile(r"[^\W\d_]+'(?:s|t|re|ll|ve|d|m)")
_BEFORE_NUMBERS = {
    "de": re.compile(
        r"\b[Uu]m [0-9]|\b[Aa][mb] [0-9]{1,2}\.|[0-9] Uhr\b|\A(?:Der|Das) [A-ZÄÖÜ][a-zäöü]"
        r"|(?<!Code )(?<!Stat\. )(?<!\.C\. )(?<!\.R\. )§"
        r"|\b(?:[Dd]e[rmns]|[Dd]ie|[Dd]as|[IiAa]m|[Vv]om|[Zz]u[mr]) [0-9]{1,3}\. ?[A-ZÄÖÜ/]"
        r"|[0-9] (?:Min|Sek|Pers|Tabl)\.|\b[Cc]a\. [0-9.,]+ ?(?:(?:k?m|k?g|cm|mm|ml|l)\b|[€%°])"
        r"|\b(?:Kap|Bj|Pkg|Gew|Dez|Okt|Mrz|Std|Stk|Nr|Pkt|Pck|Msp|Zi|Whg|MwSt|Jh|Hbf|[Zz]zgl|[Ii]nkl|Tsd|tgl|mtl)\."
        r"|(?:\bS|[Ss]tr|\bGr|\bTel)\.:? [0-9]|\b(?:PLZ|EL|TL) |/(?:Monat|Jahr|Woche|Stück)\b|IBAN:? DE[0-9]"
        r"|\b(?:hat|hatte|mit|je|rund|etwa|insg\.) [0-9.,]+ [A-ZÄÖÜ][a-zäöüß]{2,}"
        r"|[0-9]\.[/–-][0-9]{1,3}\. [A-Z]|\bMo ?[–-] ?[FS][ro]\b|[0-9]-mal\b"
        r"|\A[1-9][0-9]?\. (?:Tag|Bundesliga|Liga|Klasse|Stock)\b"
    ),
    "es": re.compile(r"\b[Aa] las? [0-9]|[0-9] de [a-z]+ de [0-9]"),
    "fr": re.compile(r"\bà [0-9]+ ?h|[0-9] ?h ?[0-9]{2}\b|\bn°|\b[Ll]e [0-9]|"
    r"[0-9](?:e|er|ère|ème)\b(?![-+0-9])"),
    "it": re.compile(r"\b[Aa]lle [0-9]|\b(?:ore|dell'|all'|nell'|l') ?[0-9]|\bL'[0-9]+[°º]"),
    "pt": re.compile(r"\bàs [0-9]|R\$|[0-9] de [a-z]+ de [0-9]"),
}  # fmt: skip
"""Words and marks next to numbers."""
_GERMAN_ALONE = re.compile(
    r"(?<![0-9.,])(?:[1-9][0-9]{0,2}(?:\.[0-9]{3})+|[0-9]+),(?:[0-9]{1,2})(?![0-9.,]) ?[%°€A-Za-zµ]"
    r"|[A-ZÄÖÜ]\w+ [0-9]{1,2} ?: ?[0-9] [A-ZÄÖÜ1][\w.]"
)
"""Amounts with a comma and results, which are German where no word tells another language."""
_SHAPED = [(language, re.compile(source)) for language, source in _SHAPES.items()]
_ENDING = [(language, re.compile(source)) for language, source in _ENDS.items()]
_WORD = re.compile(r"(?<![\w.@/-])[^\W\d_]+(?:'[^\W\d_]+)?(?![@\w]|\.\w|(?<=\b[A-Z])\.)|[¿¡]")
_OF_PARTICLE, _OF_UNREAD = 0.4, 0.75
_CAPITALS = re.compile(r"\b(?!(?:IVA|TVA|TTC|UST)\b)[A-ZÄÖÜ]{2,}\b")
_NUMBERED_NAME = re.compile(r"(\b[A-ZÁÉÈ][a-zà-ÿ]+) I\b")
_OF_FORMULA = re.compile(
    r"(?<![^\W\d])[A-Za-z](?=[⁰¹⁴-⁹⁺⁻°]|\s?[=+×÷<>≤≥≠≈^])|(?<=[=+×÷<>≤≥≠≈^])\s?[A-Za-z](?!\w)"
    r"|(?<=[(=+→])\s?\"[^\"\n]{1,20}\"|\"[a-z]{1,3}\""
)
"""Letters beside signs of a formula, and what a program quotes: no words of a language."""
_REACH = 600
"""Characters from the start that are looked at."""
_LEAST_STRONG = 2.0
_LEAST, _LEAST_SHARE, _LEAST_LEAD, _LEAST_TIED = 0.9, 0.12, 0.3, 0.6
"""A language weighs so much at least, in all and for each word, and so much more than the next."""
_CYRILLIC = re.compile("[\u0400-\u04ff]")
_OTHER_CYRILLIC = re.compile(
    "[іїєґўђјљњћџѓќѕәқңөүұһІЇЄҐЎЂЈЉЊЋЏӘҚҢӨҮҰ]|(?i:\\b(?:ми|ви|та|це|що|від|але|як|йдемо|(?<!-)й|(?<!т. )е|са|"
    "се|това|който|която|ще|един|една|със|су|није|који|од)\\b)"
)  # fmt: skip
"""Letters and small words of other languages in Cyrillic letters."""
_RUSSIAN = re.compile(
    "[ыэЫЭЁё]|(?i:\\b(?:что|или|для|если|был|была|есть|году|года|лет|рублей|человек|минут)\\b)"
)


class Evidence(NamedTuple):
    """Weights of languages by the words of a text.

    Attributes:
        language: that stands out; None where none does.
        weights: of the words of each language.
        words: the number of different words.
    """

    language: str | None
    weights: dict[str, float]
    words: int

    def prevails_over(self, other: str) -> bool:
        """Whether the language is told by most words, and hardly anything tells the other."""
        weight = self.weights.get(self.language or "", 0)
        return weight >= _LEAST_STRONG and weight > self.words / 2 and weight > 4 * self.weights.get(other, 0)


def evidence(text: str) -> Evidence:
    """The evidence that the beginning of a text has."""
    return _evidence(text[:_REACH])


def _weights() -> dict[str, dict[str, float]]:
    """The weight of each word for each language: less where others or names have it."""
    languages = Counter(word for listed in _WORDS.values() for word in set(listed.split()))
    weights: dict[str, dict[str, float]] = defaultdict(dict)
    for language, listed in _WORDS.items():
        for word in listed.split():
            weight = 1 / languages[word] ** 0.7 * (1 if language in READ else _OF_UNREAD)
            weights[word][language] = min(weight, 0.5) if word in _NAMES or len(word) == 1 else weight
    weights["i"]["en"] = 0.8
    return dict(weights)


_WEIGHTS = _weights()


@lru_cache(maxsize=512)
def _evidence(text: str) -> Evidence:
    cyrillic = len(_CYRILLIC.findall(text))
    if cyrillic > sum(map(str.isalpha, text)) / 3:
        is_russian = _RUSSIAN.search(text) or not _OTHER_CYRILLIC.search(text)
        return Evidence("ru" if is_russian else "und", {"ru": 3.0 * bool(is_russian)}, 1)
    text = _NUMBERED_NAME.sub(r"\1", text.replace("’", "'"))
    if not text.isupper():
        text = _CAPITALS.sub("", text)
    text = _OF_FORMULA.sub("", text)
    # In order, since sums of equal weights must be equal.
    words = sorted(set(_WORD.findall(_PARTICLES.sub("", text))))
    words = [] if all(map(_is_letter, words)) else words
    particles = sorted(set(_WORD.findall("".join(_PARTICLES.findall(text)))).difference(words))
    total: dict[str, float] = defaultdict(float)
    for language, pattern in _BEFORE_NUMBERS.items():
        total[language] += bool(pattern.search(text))
    for word, share in [*((word, 1.0) for word in words), *((word, _OF_PARTICLE) for word in particles)]:
        for language, weight in _weight_of(word).items():
            total[language] += weight * share
    if _GERMAN_ALONE.search(text) and not any(map(_is_told, words)):
        total["de"] += 1
    return Evidence(_outstanding(total, len(words)), dict(total), len(words))


def _outstanding(total: Mapping[str, float], words: int) -> str | None:
    """The language that weighs most, if it does so clearly.

    Where nothing is English, it is enough that one of the languages read is it, whichever weighs most.
    """
    first, second = [*sorted(total, key=total.__getitem__, reverse=True), "", ""][:2]
    weight, least = total.get(first, 0), max(_LEAST, _LEAST_SHARE * words)
    if weight >= least and weight - total.get(second, 0) >= _LEAST_LEAD:
        return first
    together = sum(total[language] for language in _NOT_ENGLISH)
    tied = first in READ and weight >= _LEAST_TIED and together >= least and total.get("en", 0) < _LEAST_LEAD
    return first if tied else None


def _is_told(word: str) -> bool:
    """Whether a word is in small letters and no unit, or tells another language than German."""
    weights = _weight_of(word)
    return any(
        weight for language, weight in weights.items() if language != "de" and not weights.get("de")
    ) or (word.islower() and word.isalpha() and word not in _LOANS and not weights)


def _is_letter(word: str) -> bool:
    return len(word) == 1 and word not in "¿¡"


@lru_cache(maxsize=4096)
def _weight_of(word: str) -> dict[str, float]:
    """The weight of a word for each language."""
    small = word.lower()
    if small in _WEIGHTS:
        return _WEIGHTS[small]
    if small in _LOANS:
        return {}
    if _ENGLISH_END.fullmatch(small):
        return {"en": 1.0}
    weights: dict[str, float] = defaultdict(float)
    if "'" in small:
        weights |= _weight_of(small.split("'")[1])
    for language, shape in _SHAPED:
        if shape.fullmatch(small):
            weights[language] += _OF_SHAPE
    for language, end in _ENDING:
        if end.fullmatch(word) and not weights[language]:
            weights[language] = _OF_END
    for letter in set(small) & _LETTERS.keys():
        for language, weight in _LETTERS[letter].items():
            # Names keep their letters in all languages.
            weights[language] += weight * (1 if word == small or language == "de" else 0.5)
    return weights
