"""German: tables of numbers, units, currencies, signs and names."""

from __future__ import annotations

from cosyvoice_runtime.text.reading.languages.european import currencies, listed, months, units
from cosyvoice_runtime.text.reading.languages.language import Unit

SMALL = listed(
    """null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn
    sechzehn siebzehn achtzehn neunzehn"""
)
TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]
LARGE = [
    ("Million", "Millionen"), ("Milliarde", "Milliarden"), ("Billion", "Billionen"),
    ("Billiarde", "Billiarden"), ("Trillion", "Trillionen"), ("Trilliarde", "Trilliarden"),
    ("Quadrillion", "Quadrillionen"),
]  # fmt: skip
ORDINALS = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}
MONTH_WORDS = listed("""Januar Februar März April Mai Juni Juli August September Oktober November Dezember""")
MONTHS = months(
    [name.lower() for name in MONTH_WORDS],
    {
        "jänner": 1, "jan": 1, "feb": 2, "febr": 2, "mär": 3, "mrz": 3, "apr": 4, "jun": 6, "jul": 7,
        "aug": 8,
        "sep": 9, "sept": 9, "okt": 10, "nov": 11, "dez": 12,
    },
)  # fmt: skip
_PREFIXES = {
    "n": "Nano", "µ": "Mikro", "m": "Milli", "c": "Zenti", "d": "Dezi", "h": "Hekto", "k": "Kilo",
    "K": "Kilo",
    "M": "Mega", "G": "Giga", "T": "Tera", "P": "Peta",
}  # fmt: skip


def _units() -> dict[str, Unit]:
    found = units(
        {
            "m": "meter/meter", "g": "gramm/gramm", "l L": "liter/liter", "s": "sekunde/sekunden/f",
            "B": "byte/byte", "bit": "bit/bit", "Hz": "hertz/hertz", "W": "watt/watt",
            "Wh": "wattstunde/wattstunden/f", "V": "volt/volt", "A": "ampere/ampere",
            "Ah": "amperestunde/amperestunden/f", "Pa": "pascal/pascal", "J": "joule/joule",
            "cal": "kalorie/kalorien/f", "Ω": "ohm/ohm", "N": "newton/newton", "mol": "mol/mol",
            "bar": "bar/bar",
        },
        _PREFIXES,
        {2: ("Quadrat{}", "Quadrat{}"), 3: ("Kubik{}", "Kubik{}")},
    )  # fmt: skip
    found = {
        sign: Unit(_compound(unit.one), _compound(unit.many), unit.gender) for sign, unit in found.items()
    }
    more = units(
        {
            "t": "Tonne/Tonnen/f", "Ztr": "Zentner/Zentner", "ha": "Hektar/Hektar",
            "min Min. Min min.": "Minute/Minuten/f",
            "h Std. Std": "Stunde/Stunden/f", "sec Sek. sek": "Sekunde/Sekunden/f", "d": "Tag/Tage",
            "Mio._m": "Millionen Meter/Millionen Meter", "PS": "PS/PS", "x": "mal/mal",
            "dB dB(A)": "Dezibel/Dezibel", "lm": "Lumen/Lumen",
            "Nm": "Newtonmeter/Newtonmeter", "lx": "Lux/Lux",
            "%": "Prozent/Prozent", "‰": "Promille/Promille", "°": "Grad/Grad",
            "°C ℃ °_C": "Grad Celsius/Grad Celsius", "°F ℉": "Grad Fahrenheit/Grad Fahrenheit",
            "kWh kwh": "Kilowattstunde/Kilowattstunden/f", "mv": "Millivolt/Millivolt",
            "l/100_km l/100km": "Liter auf ein hundert Kilometer/Liter auf ein hundert Kilometer",
        "mmHg": "Millimeter Quecksilbersäule/Millimeter Quecksilbersäule",
            "ft": "Fuß/Fuß", "mi": "Meile/Meilen/f", "lb lbs": "Pfund/Pfund", "oz": "Unze/Unzen/f",
            "mph": "Meile pro Stunde/Meilen pro Stunde/f", "px": "Pixel/Pixel", "EL": "Esslöffel/Esslöffel",
            "TL": "Teelöffel/Teelöffel", "Stk. Stk": "Stück/Stück",
            "Msp. Msp": "Messerspitze/Messerspitzen/f", "Pck. Pckg. Pkg.": "Päckchen/Päckchen",
            "Pers.": "Person/Personen/f", "J.": "Jahr/Jahre", "Mon.": "Monat/Monate", "Tg.": "Tag/Tage",
            "Zi.": "Zimmer/Zimmer", "Pkt.": "Punkt/Punkte",
            "Wo.": "Woche/Wochen/f",
            "Tbl. Tabl.": "Tablette/Tabletten/f", "bpm BPM": "Schlag pro Minute/Schläge pro Minute",
            "kWh/100_km": "Kilowattstunde auf ein hundert Kilometer/"
            "Kilowattstunden auf ein hundert Kilometer/f",
            "kWh/(m²·a) kWh/(m²a) kWh/m²a kWh/(m²*a)": "Kilowattstunde pro Quadratmeter und Jahr/"
            "Kilowattstunden pro Quadratmeter und Jahr/f",
            "/min.": "pro Minute/pro Minute", "Bft": "Beaufort/Beaufort",
            "kWp": "Kilowatt Peak/Kilowatt Peak",
            "Wp": "Watt Peak/Watt Peak", "MP": "Megapixel/Megapixel",
            "I.E. IE": "Internationale Einheit/Internationale Einheiten/f",
            "AE": "Astronomische Einheit/Astronomische Einheiten/f", "Lj. Lj": "Lichtjahr/Lichtjahre",
            "cd/m² cd/m2": "Candela pro Quadratmeter/Candela pro Quadratmeter", "cd": "Candela/Candela",
            "Pr.": "Prise/Prisen/f", "Sch.": "Scheibe/Scheiben/f", "Gl.": "Glas/Gläser",
            "Bd.": "Bund/Bund", "Tr.": "Tropfen/Tropfen",
            "Fl.": "Flasche/Flaschen/f", "Port.": "Portion/Portionen/f",
            "/min": "pro Minute/pro Minute", "/s": "pro Sekunde/pro Sekunde", "/h": "pro Stunde/pro Stunde",
            "U/min U/min. rpm": "Umdrehung pro Minute/Umdrehungen pro Minute/f",
            "qm": "Quadratmeter/Quadratmeter",
            "Mbps": "Megabit pro Sekunde/Megabit pro Sekunde",
            "Mbit": "Megabit/Megabit", "Gbit": "Gigabit/Gigabit",
            "Gbps": "Gigabit pro Sekunde/Gigabit pro Sekunde",
        },
        {},
        {},
        prefixed={},
        lengths=(),
    )  # fmt: skip
    return found | more


def _compound(word: str) -> str:
    """A noun of parts with one capital: ``KiloMeter`` would be two."""
    return word[:1].upper() + word[1:].lower()


UNITS = _units()
PER_UNITS = {
    sign: UNITS[sign] for sign in ("s", "min", "h", "km", "m", "kg", "g", "l", "m²", "m³", "kWh", "ha",
    "Std.", "dl", "ml", "Mon.", "kWp")
} | {
    "s²": Unit("Sekunde zum Quadrat", "Sekunden zum Quadrat"),
    "Tag": Unit("Tag", "Tage"), "Monat": Unit("Monat", "Monate"), "Jahr": Unit("Jahr", "Jahre"),
    "Woche": Unit("Woche", "Wochen"), "Stunde": Unit("Stunde", "Stunden"), "Person": Unit("Person",
    "Personen"),
    "Stk.": Unit("Stück", "Stück"), "Stk": Unit("Stück", "Stück"),
    "J.": Unit("Jahr", "Jahre"), "cm³": UNITS["cm³"], "cm²": UNITS["cm²"], "mm²": UNITS["mm²"],
    "dm³": UNITS["dm³"], "mol": UNITS["mol"], "mg": UNITS["mg"],
    "Unze": Unit("Unze", "Unzen"), "Nacht": Unit("Nacht", "Nächte"), "Stück": Unit("Stück", "Stück"),
}  # fmt: skip
SCALES = {
    "Mio.": "Millionen", "Mio": "Millionen", "Mrd.": "Milliarden", "Mrd": "Milliarden", "Tsd.": "Tausend",
    "Bio.": "Billionen",
    **{
        word: word
        for name in ("Million", "Millionen", "Milliarde", "Milliarden", "Billion", "Billionen", "Tausend")
        for word in (name, name.lower())
    },
}  # fmt: skip
SINGLE_SCALES = {many: one for one, many in LARGE}
MASCULINE = frozenset(
    listed("""opa papa
    käse junge name kunde hase affe bote experte kollege gedanke buchstabe neffe zeuge auge ende
    interesse gebäude gemüse getränk gebirge löwe sklave erbe gatte herde's biologe psychologe riese glaube
    wille funke haufe friede drache franzose russe chinese pole schwede däne brite deutsche finale fahrzeuge
    image ave ergebnisse pfund genie knie pinsel start flur brei""")
)
"""Nouns that end like those of feminine gender and are not."""
MASCULINE_COUNTED = frozenset(
    listed("""bruder sohn vater onkel opa neffe enkel tag monat abend morgen hund apfel kuchen salat
    löffel esslöffel
    teelöffel becher bund mann freund kollege kunde schüler lehrer euro cent dollar franken meter kilometer
    zentimeter millimeter punkt platz schritt teil stuhl tisch brief film zug bus flug termin stern fehler
    liter milliliter kaffee tee saft beutel sack topf wunsch grund versuch fall weg raum arzt anruf artikel
    satz kilometer quadratmeter kubikmeter zoll stich tropfen schluck sekt wein joghurt baum ball computer
    laptop drucker bildschirm parkplatz sitzplatz gutschein rabatt urlaub vertrag bericht""")
)
"""Nouns of masculine gender that are often counted."""
CURRENCIES = currencies(
    {
        "€ EUR Euro": ("Euro/Euro", "Cent/Cent"),
        "$ US$ US-$ USD Dollar": ("Dollar/Dollar", "Cent/Cent"),
        "£ GBP": ("Pfund/Pfund", "Penny/Pence"),
        "CHF Fr. Franken": ("Franken/Franken", "Rappen/Rappen"),
        "¥ JPY Yen": ("Yen/Yen", ""),
        "CNY RMB Yuan": ("Yuan/Yuan", ""),
        "₩ KRW": ("Won/Won", ""),
        "₹ INR": ("Rupie/Rupien/f", "Paisa/Paise"),
        "₽ RUB Rubel": ("Rubel/Rubel", "Kopeke/Kopeken/f"),
        "SEK DKK NOK": ("Krone/Kronen/f", ""),
        "PLN zł": ("Złoty/Złoty", "Groszy/Groszy"),
        "TRY ₺": ("Lira/Lira/f", ""),
        "₿ BTC": ("Bitcoin/Bitcoin", ""),
        "ct Cent": ("Cent/Cent", ""),
    }
)
SIGNS = {
    ".": "Punkt", "/": "Slash", "\\": "Backslash", "@": "at", "-": "Bindestrich", "_": "Unterstrich",
    ":": "Doppelpunkt", "?": "Fragezeichen", "=": "Gleichheitszeichen", "&": "Und", "#": "Raute",
    "%": "Prozent", "+": "Plus", "~": "Tilde",
}  # fmt: skip
SIGNS_BEFORE = {
    "-": "minus", "−": "minus", "+": "plus", "~": "etwa", "#": "Nummer", "≈": "etwa", "≤": "höchstens",
    "≥": "mindestens", "±": "plus minus", "<": "weniger als", ">": "mehr als", "Ø": "Durchmesser",
}  # fmt: skip
OPERATIONS = {
    "+": "plus", "-": "minus", "−": "minus", "–": "minus", "=": "gleich", "==": "gleich", "×": "mal",
    "*": "mal", "÷": "geteilt durch", "/": "geteilt durch", "<": "kleiner als", ">": "größer als",
    "≈": "ungefähr gleich", "≠": "ungleich", "!=": "ungleich", "≤": "kleiner gleich",
    "<=": "kleiner gleich",
    "≥": "größer gleich", ">=": "größer gleich", "±": "plus minus",
}  # fmt: skip
_GREEK = listed(
    """Alpha Beta Gamma Delta Epsilon Zeta Eta Theta Iota Kappa Lambda My Ny Xi Omikron Pi Rho Sigma Sigma Tau
    Ypsilon Phi Chi Psi Omega"""
)
LETTERS = {chr(ord("α") + at): name for at, name in enumerate(_GREEK)}
LETTERS |= {letter.upper(): name for letter, name in LETTERS.items()}
ABBREVIATIONS = {
    "z. T.": "zum Teil", "z.T.": "zum Teil", "z. Z.": "zur Zeit", "z. Zt.": "zur Zeit", "z.Zt.": "zur Zeit",
    "o. Ä.": "oder Ähnliches", "o.Ä.": "oder Ähnliches", "u. Ä.": "und Ähnliches", "u.Ä.": "und Ähnliches",
    "u. v. m.": "und vieles mehr", "u.v.m.": "und vieles mehr", "uvm.": "und vieles mehr",
    "s. o.": "siehe oben", "s.o.": "siehe oben", "s. u.": "siehe unten", "s.u.": "siehe unten",
    "i. A.": "im Auftrag", "z. Hd.": "zu Händen", "z.Hd.": "zu Händen", "m. E.": "meines Erachtens",
    "m.E.": "meines Erachtens", "o. g.": "oben genannten", "o.g.": "oben genannten",
    "v. a.": "vor allem", "v.a.": "vor allem", "u.U.": "unter Umständen", "i. V. m.": "in Verbindung mit",
    "i.V.m.": "in Verbindung mit", "i. S. d.": "im Sinne des", "d. J.": "dieses Jahres",
    "Hbf": "Hauptbahnhof", "Bhf": "Bahnhof", "Bhf.": "Bahnhof", "MwSt.": "Mehrwertsteuer",
    "MwSt": "Mehrwertsteuer", "Bspw.": "Beispielsweise", "Inkl.": "Inklusive", "Exkl.": "Exklusive",
    "Evtl.": "Eventuell", "Ggf.": "Gegebenenfalls", "Max.": "Maximal", "Mind.": "Mindestens",
    "Zzgl.": "Zuzüglich", "bzgl.": "bezüglich", "insb.": "insbesondere", "insbes.": "insbesondere",
    "allg.": "allgemein", "usf.": "und so fort", "Jhd.": "Jahrhundert", "Jhdt.": "Jahrhundert",
    "abzgl.": "abzüglich", "i. Allg.": "im Allgemeinen", "ugs.": "umgangssprachlich", "zw.": "zwischen",
    "Min.": "Minuten", "Sek.": "Sekunden", "Verf.": "Verfasser", "Hrsg.": "Herausgeber", "§§": "Paragrafen",
    "Tsd.": "Tausend", "Vors.": "Vorsitzende", "vorauss.": "voraussichtlich", "Bhfs.": "Bahnhofs",
    "n. u. Z.": "nach unserer Zeit", "v. u. Z.": "vor unserer Zeit", "p. m.": "pro Monat",
    "Dtl.": "Deutschland", "h. c.": "honoris causa", "wg.": "wegen", "Ggs.": "Gegensatz", "Anm.": "Anmerkung",
    "Hptstr.": "Hauptstraße", "Mt.": "Mount", "zus.": "zusammen", "i. F.": "in Folge", "Pkg.": "Packung",
    "lfm": "laufende Meter", "li.": "links", "Empf.": "Empfehlung",
    "od.": "oder", "Ri.": "Richtung", "Bsp.": "Beispiel", "Hm": "Höhenmeter",
    "Strg": "Steuerung", "Entf": "Entfernen",
    "z. B.": "zum Beispiel", "z.B.": "zum Beispiel", "Z. B.": "Zum Beispiel", "Z.B.": "Zum Beispiel",
    "d. h.": "das heißt", "d.h.": "das heißt", "u. a.": "unter anderem", "u.a.": "unter anderem",
    "i. d. R.": "in der Regel", "i.d.R.": "in der Regel", "u. U.": "unter Umständen",
    "o. ä.": "oder ähnliches",
    "bzw.": "beziehungsweise", "ca.": "circa", "Ca.": "Circa", "usw.": "und so weiter", "etc.": "et cetera",
    "ggf.": "gegebenenfalls", "evtl.": "eventuell", "inkl.": "inklusive", "exkl.": "exklusive",
    "vgl.": "vergleiche", "Vgl.": "Vergleiche", "n. V.": "nach Verlängerung",
    "n.V.": "nach Verlängerung", "i. E.": "im Elfmeterschießen", "n. E.": "nach Elfmeterschießen",
    "tgl.": "täglich", "wöch.": "wöchentlich", "mtl.": "monatlich", "i. H. v.": "in Höhe von", "o.": "oder",
    "i.H.v.": "in Höhe von", "Vj.": "Vorjahr", "ü. NN": "über Normalnull", "eff.": "effektiv", "Lt.": "Laut",
    "ü. d. M.": "über dem Meer", "Gr.": "Größe", "dt.": "deutsch", "Tbl.": "Tablette", "tägl.": "täglich",
    "Wdh.": "Wiederholungen", "u.": "und", "ggü.": "gegenüber", "MfG": "Mit freundlichen Grüßen",
    "Fam.": "Familie", "Pl.": "Platz", "Anf.": "Anfang", "EL": "Esslöffel", "TL": "Teelöffel",
    "Ref.-Nr.": "Referenznummer",
    "Rg.-Nr.": "Rechnungsnummer",
    "Kd.-Nr.": "Kundennummer", "Best.-Nr.": "Bestellnummer",
    "Tel.-Nr.": "Telefonnummer", "Art.-Nr.": "Artikelnummer", "Re.-Nr.": "Rechnungsnummer",
    "Nr.": "Nummer", "Str.": "Straße", "Dr.": "Doktor", "Prof.": "Professor",
    "Tel.": "Telefon", "Mio.": "Millionen", "Mrd.": "Milliarden", "St.": "Sankt", "S.": "Seite",
    "Abb.": "Abbildung", "Kap.": "Kapitel", "Art.": "Artikel", "Abs.": "Absatz", "max.": "maximal",
    "min.": "minimal", "mind.": "mindestens", "v. Chr.": "vor Christus", "n. Chr.": "nach Christus",
    "Hbf.": "Hauptbahnhof", "Jh.": "Jahrhundert", "sog.": "sogenannt", "geb.": "geboren",
    "gest.": "gestorben",
    "p. a.": "pro anno", "Erw.": "Erwachsene", "p. P.": "pro Person", "p.P.": "pro Person",
    "Urt. v.": "Urteil vom",
    "i. V.": "in Vertretung", "p.a.": "pro anno", "Az.": "Aktenzeichen", "Gl.": "Gleis", "Whg.": "Wohnung",
    "rd.": "rund",
    "Pos.": "Position", "a. M.": "am Main", "a. d.": "an der", "a. A.": "anderer Ansicht", "Bj.": "Baujahr",
    "Einw.": "Einwohner",
    "EUR": "Euro", "Fa.": "Firma", "Hr.": "Herr", "Fr.": "Frau", "Std": "Stunden", "Ing.": "Ingenieur",
    "Dipl.-Ing.": "Diplomingenieur",
    "Dr. med.": "Doktor med", "ff.": "fortfolgende", "f.": "folgende", "Ziff.": "Ziffer", "Bd.": "Band",
    "Tab.": "Tabelle", "Aufl.": "Auflage", "zzgl.": "zuzüglich", "gem.": "gemäß", "lt.": "laut",
    "Pkt.": "Punkt",
    "vs.": "gegen", "bspw.": "beispielsweise", "§": "Paragraf", "Std.": "Stunden",
    "Mo.": "Montag", "erm.": "ermäßigt", "innerh.": "innerhalb", "außerh.": "außerhalb",
    "USt.": "Umsatzsteuer", "USt": "Umsatzsteuer", "geschl.": "geschlossen", "op.": "Opus", "Op.": "Opus",
    "einschl.": "einschließlich", "zuzügl.": "zuzüglich", "abzügl.": "abzüglich", "insg.": "insgesamt",
    "Kl.": "Klasse", "Frühj.": "Frühjahr", "Tabl.": "Tablette", "LW": "Lebenswoche",
    "Temp.": "Temperatur", "Ausf.": "Ausfahrt", "StKl.": "Steuerklasse",
    "Wfl.": "Wohnfläche", "Vorl.": "Vorlagen", "n. B.": "nach Belieben", "d. Gr.": "der Große",
    "Betr.": "Betreff", "eff. Jahreszins": "effektiver Jahreszins", "I.E.": "Internationale Einheiten",
    "SSW": "Schwangerschaftswoche",
    "durchschn.": "durchschnittlich", "urspr.": "ursprünglich", "entspr.": "entspricht",
    "versch.": "verschiedene", "vorm.": "vormittags", "nachm.": "nachmittags", "u. dgl.": "und dergleichen",
    "Feiert.": "Feiertage", "ggfs.": "gegebenenfalls", "ges.": "gesamt", "mglw.": "möglicherweise",
}  # fmt: skip
KNOWN_LABELS = {"gmail": "g mail"}
ORDERED = frozenset(
    listed("""geburtstag jahrestag jubiläum jahrhundert stock etage platz kapitel klasse mal
runde tag woche spiel jahr ampel werktag rang
    bundesliga liga weltkrieg auflage ausgabe semester schritt teil akt satz minute stunde monat quartal
    hochzeitstag kl stelle reihe halbjahr lebensjahr schuljahr fc bezirk obergeschoss og""")
)
"""Words in small letters that an ordinal stands before."""
SENTENCE_STARTS = frozenset(
    listed("""Pro Macht Ideal Vorher Nachher Optimal Wichtig Tipp Zuerst Zuletzt Alternativ Meist Oft
    Wegen Gerne Dein Deine Gib Ab Falls Trotz Durch Ohne Zwischen Während Ansonsten Anschließend
    Zusätzlich Insgesamt Allerdings Sonst Sobald Sollte Sollten Wird Werden Ist Sind Hat Haben Kann Können
    Beim Vom Zwar Einige Viele Manche Bereits Erst Rund Etwa Leider Natürlich Achte Achten Nimm Nehmen
    Der Die Das Ein Eine Er Sie Es Wir Ich Ihr Du Man Dann Danach Dort
Hier In Im Am An Auf Bei Mit Nach
    Von
    Zu Zum Und Aber Oder Doch Denn Wenn Weil Als Wie Was Wer Wo Warum Dies Diese Dieser Dieses Bitte Auch
    Nur
    So Heute Morgen Gestern Jetzt Damit Dabei Dafür Deshalb Für Vor Seit Bis Es Alle Alles Kein Keine Unter
    Über Ja Nein Später Außerdem Mein Meine Sein Seine Unser Unsere""")
)
"""Words that begin a sentence, so that the number before ends one."""
QUEENS = frozenset({"maria", "elisabeth", "elizabeth", "katharina", "margarethe", "victoria", "isabella"})
NEUTER = frozenset(
    listed("""ei sofa thema komma klima drama schema baguette jahr kilo pfund gramm
    kapitel spiel tor mal semester halbjahr jahr quartal stockwerk buch gebot obergeschoss gleis
    kind viertel og eg ug dg
    bild bier foto handy hotel kino radio wort wochenende treffen date team album konzert kleid hemd leder
    kloster opfer silber kupfer ufer wetter alter segel möbel dessert steak schnitzel café stadion abitur
    gewand rezept projekt kabel etikett bad bett geschenk interview ticket video tier pferd schiff spielzeug
    werkzeug flugzeug programm system problem ergebnis ziel gericht gewürz gebiss ende auge interesse
    gebäude gemüse drittel training lebensjahr schuljahr jahrhundert jahrzehnt gebiet haus bundesland""")
)
RULERS = frozenset(
    listed("""ludwig heinrich karl carl friedrich wilhelm elisabeth papst johannes paul benedikt franz otto
    georg philipp leopold maximilian katharina peter alexander nikolaus napoleon könig kaiser rudolf konrad
    august gustav ferdinand joseph josef albert edward eduard richard charles jakob sigismund lothar pius leo
    gregor urban innozenz klemens clemens iwan ramses harald christian albrecht margarethe victoria isabella
    adolf ernst viktor juan elizabeth maria""")
)
BEFORE_ROMAN = frozenset(
    listed("""kapitel teil band akt szene anhang artikel stufe klasse typ phase weltkrieg steuerklasse
    lohnsteuerklasse steuerkl grad art bd faust krieger hartz""")
)
