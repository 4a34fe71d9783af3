from __future__ import annotations

import pytest

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.text.language import detect, resolve


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("你好 hello", "zh"),
        ("約翰・史密斯", "zh"),
        ("これは漢字です", "ja"),
        ("한국어 漢字", "ko"),
        ("Hello – “world” 5", "en"),
        ("12.5%", "en"),
        ("Grüße", "de"),
        ("Привет", "ru"),
        ("Ich habe 3 Katzen", "de"),
        ("Hola tengo 5 gatos", "es"),
        ("J'ai 3 chats", "fr"),
        ("Ho 3 gatti", "it"),
        ("Tenho 3 gatos", "pt"),
        ("Это стоит 100 рублей", "ru"),
        ("Ми йдемо о 5", "und"),
        ("Du er den 3. bedste i dag", "und"),
        ("De 3 katten van het huis", "und"),
        ("Maria de la Cruz won 3 games in Los Angeles", "en"),
        ("Dr. von der Leyen met 3 ministers", "en"),
        ("from 8:15am to 9:45am", "en"),
        ("Smith et al. 2020", "en"),
        ("Die Hard 2", "en"),
        ("Mon 3/10–Fri 3/14", "en"),
        ("y = 2x + 1", "en"),
    ],
)
def test_detect(text: str, language: str) -> None:
    assert detect(text) == language


SHORT = {
    "de": [
        "Hier ist die Liste:",
        "1. Mehl",
        "2. 3 Eier",
        "Mozart (1756–1791) schrieb über 600 Werke.",
        "5 Äpfel",
        "Der Zug fährt um 14:05 Uhr von Gleis 7 ab.",
        "Das kostet 3,50 €.",
        "Schritt 1: Backofen auf 180 °C vorheizen.",
        "200 g Mehl",
        "3 Zwiebeln, fein gehackt",
        "Gesamtbetrag: 45,90 €",
        "Ab 1. Juli",
        "Montag, 3. Mai",
        "Öffnungszeiten: 9–17 Uhr",
        "Preis: 20 €",
        "Kontostand: 1.234,56 €",
        "Bayern München gewann 3:1.",
        "Wolfgang Amadeus Mozart wurde am 27. Januar 1756 geboren.",
        "Angela Merkel, geboren 1954",
        "Die Temperatur beträgt 21 °C.",
        "Ergebnis: 2:1",
        "2 Esslöffel Öl",
        "Berlin hat 3,7 Millionen Einwohner.",
        "Rufen Sie 030 1234567 an.",
        "Meeting um 10:30",
        "Das Meeting ist um 10:30 im Office, bitte join the call.",
        "Ja, 3.",
        "30 Minuten backen",
        "ca. 30 Minuten",
        "Zutaten:",
        "§ 5 Abs. 2 BGB",
    ],
    "es": [
        "Aquí tienes la lista:\n1. Harina",
        "2. 3 huevos",
        "El tren sale a las 14:05.",
        "Cuesta 3,50 €.",
        "¿Cuánto cuesta? 20 €",
        "Tengo 3 gatos",
        "200 g de harina",
        "El 5 de mayo de 2024",
        "Paso 1: precalentar el horno a 180 °C.",
        "España ganó 3-1.",
        "La población es de 47 millones.",
        "Mozart escribió más de 600 obras.",
        "Total: 45,90 € IVA incluido",
        "Hay 25 niños en la clase.",
        "Reunión a las 10:30",
    ],
    "fr": [
        "Voici la liste :\n1. Farine",
        "2. 3 œufs",
        "Le train part à 14 h 05.",
        "Ça coûte 3,50 €.",
        "Il y a 25 enfants.",
        "200 g de farine",
        "Le 5 mai 2024",
        "Étape 1 : préchauffer le four à 180 °C.",
        "Mozart a écrit plus de 600 œuvres.",
        "La France a gagné 3-1.",
        "Prix total : 45,90 € TTC",
        "Réunion à 10h30",
        "L'eau bout à 100 °C.",
    ],
    "it": [
        "Ecco la lista:\n1. Farina",
        "2. 3 uova",
        "Il treno parte alle 14:05.",
        "Costa 3,50 €.",
        "Ci sono 25 bambini.",
        "200 g di farina",
        "Il 5 maggio 2024",
        "Passo 1: preriscaldare il forno a 180 °C.",
        "Mozart scrisse più di 600 opere.",
        "L'Italia ha vinto 3-1.",
        "Totale: 45,90 € IVA inclusa",
        "Riunione alle 10:30",
        "L'acqua bolle a 100 °C.",
    ],
    "pt": [
        "Aqui está a lista:\n1. Farinha",
        "2. 3 ovos",
        "O trem sai às 14h05.",
        "Custa R$ 3,50.",
        "Há 25 crianças.",
        "200 g de farinha",
        "5 de maio de 2024",
        "Passo 1: preaqueça o forno a 180 °C.",
        "Mozart escreveu mais de 600 obras.",
        "O Brasil ganhou de 3 a 1.",
        "Total: R$ 45,90",
        "Reunião às 10h30",
        "A água ferve a 100 °C.",
    ],
    "ru": [
        "Привет, 5",
        "Вот список:\n1. Мука",
        "Цена: 5 руб.",
        "Поезд отправляется в 14:05.",
    ],
    "en": [
        "I ate a Döner for $5",
        "the café opens at 9:30",
        "Señor Lopez owes 20 dollars",
        "Müller scored 3 goals",
        "São Paulo has 12 million people",
        "Beyoncé sold 200 million records",
        "Flight LH 400 to München departs at 10:05",
        "Crème brûlée: $8",
        "1. Flour",
        "2. 3 eggs",
        "Total: $45.90",
        "Score: 3-1",
        "El Niño 2023",
        "La La Land (2016)",
        "Die, die, die! 3 times",
        "Los Angeles Lakers 102, Boston Celtics 99",
        "Citroën C4 2019",
        "Pokémon 151",
        "Mr. García paid $300",
        "Björk's 3rd album",
        "He lived at 5 Rue de la Paix, Paris",
        "Room 12",
        "Version 2.0",
        "Pi is 3.14",
        "A 5 km run",
        "Step 1: Preheat the oven to 350°F.",
        "Ernst & Young 2019 report",
        "Via Roma 5",
        "$5 per person",
        "Boil 2 eggs",
        "Was 5, is 6",
        "an 8 a.m. start",
        "Angela Merkel (1954)",
        "Jalapeño poppers, 6 pieces",
        "Call 911",
        "Sum: 12 + 3",
        "Nov 5",
        "Chapter 3: Déjà vu",
        "Dubai 2020",
        "Hotel California 1976",
        "Tour de France 2023",
        "Café de Flore, 172 Boulevard Saint-Germain",
        "Add 2 cups of flour.",
        "E = mc^2",
        "Apollo 11",
        "iPhone 15 Pro Max 256 GB",
        "Tel Aviv: 25 °C",
        "Madrid 2-1 Barcelona",
    ],
}
"""Short texts that one word, letter or form of a number tells, and names and loans that don't."""


@pytest.mark.parametrize(
    ("language", "text"), [(tag, text) for tag, texts in SHORT.items() for text in texts]
)
def test_short_text_is_told_by_its_words_and_letters(language: str, text: str) -> None:
    assert detect(text) == language


@pytest.mark.parametrize(("tag", "language"), [("zh-CN", "zh"), ("yue", "zh"), ("EN", "en"), ("de-AT", "de")])
def test_tag_overrides_detection(tag: str, language: str) -> None:
    assert resolve("漢字です", tag) == language


@pytest.mark.parametrize("tag", ["z", "klingonese", "en-!", "12", "-"])
def test_malformed_tag_is_invalid_input(tag: str) -> None:
    with pytest.raises(InvalidInput, match="language"):
        resolve("text", tag)
