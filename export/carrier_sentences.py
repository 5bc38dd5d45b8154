"""Sentences with places for things, in a few languages: to measure what a model copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from model.bundle.languages import primary_subtag

TEMPLATES: Mapping[str, Sequence[str]] = {
    "en": (
        *("{} is on the table.", "{}: the dog saw it first.", "We saw {} in the garden."),
        *("Look at {}.", "My sister told me that {} was there yesterday.", "Do you know {}?"),
        *("The old man and his dog found {} near the river.", "I don't know what {} means."),
        *("She asked for {}, but nobody had it.", "They were talking about {}"),
        *("If you need {}, please call me.", "There is nothing like {} in our house!"),
        *("Please open {} and read it.", "The number of the order is {}.", "Click on {} to begin."),
        *("The file {} was not found.", "You will find more in {}.", "Thank you for {}."),
        *("{} and {} are here.", "We saw {} before {} came.", "The letter says {}, and then {}."),
        *("He gave me {} for {}.", "Please send {} to my brother with {}.", "Is it {} or {}?"),
        *("{}, {} and {} are in the book.", "The man with {} wrote {} and then {}."),
        *("Take {} first, then {}, and at last {}.", "Between {} and {} there is only {}."),
    ),
    "de": (
        *("{} liegt auf dem Tisch.", "{}: Der Hund hat es zuerst gesehen.", "Sieh dir {} an."),
        *("Wir haben {} im Garten gesehen.", "Meine Schwester sagte, dass {} gestern da war."),
        *("Der alte Mann fand {} am Fluss.", "Ich weiß nicht, was {} bedeutet.", "Kennst du {}?"),
        *("Sie fragte nach {}, aber niemand hatte es.", "Sie sprachen über {}"),
        *("Wenn du {} brauchst, ruf mich bitte an.", "Es gibt nichts wie {} in unserem Haus!"),
        *("Bitte öffne {} und lies es.", "Die Nummer der Bestellung ist {}."),
        *("Klicken Sie auf {}, um zu beginnen.", "Die Datei {} wurde nicht gefunden."),
        *("Mehr dazu finden Sie in {}.", "Vielen Dank für {}.", "{} und {} sind hier."),
        *("Wir sahen {}, bevor {} kam.", "Im Brief steht {} und dann {}.", "Ist es {} oder {}?"),
        *("Er gab mir {} für {}.", "Bitte schicke {} mit {} an meinen Bruder."),
        *("{}, {} und {} stehen im Buch.", "Der Mann mit {} schrieb {} und dann {}."),
        *("Nimm zuerst {}, dann {} und zuletzt {}.", "Zwischen {} und {} ist nur {}."),
    ),
    "fr": (
        *("{} est sur la table.", "{} : le chien l'a vu en premier.", "Regarde {}."),
        *("Nous avons vu {} dans le jardin.", "Ma sœur m'a dit que {} était là hier."),
        *("Le vieil homme a trouvé {} près de la rivière.", "Je ne sais pas ce que {} veut dire."),
        *("Elle a demandé {}, mais personne ne l'avait.", "Ils parlaient de {}"),
        *("Si tu as besoin de {}, appelle-moi.", "Il n'y a rien comme {} dans notre maison !"),
        *("Ouvrez {} et lisez-le.", "Le numéro de la commande est {}.", "Connais-tu {} ?"),
        *("Cliquez sur {} pour commencer.", "Le fichier {} est introuvable.", "Merci pour {}."),
        *("{} et {} sont ici.", "Nous avons vu {} avant que {} vienne.", "Est-ce {} ou {} ?"),
        *("La lettre dit {}, et puis {}.", "Il m'a donné {} pour {}."),
        *("{}, {} et {} sont dans le livre.", "L'homme avec {} a écrit {} et puis {}."),
        *("Prends d'abord {}, puis {}, et enfin {}.", "Entre {} et {}, il n'y a que {}."),
    ),
    "es": (
        *("{} está en la mesa.", "{}: el perro lo vio primero.", "Mira {}.", "¿Conoces {}?"),
        *("Vimos {} en el jardín.", "Mi hermana me dijo que {} estaba allí ayer."),
        *("El viejo encontró {} cerca del río.", "No sé qué significa {}."),
        *("Ella pidió {}, pero nadie lo tenía.", "Estaban hablando de {}"),
        *("Si necesitas {}, llámame.", "¡No hay nada como {} en nuestra casa!"),
        *("Abre {} y léelo.", "El número del pedido es {}.", "Gracias por {}."),
        *("Haga clic en {} para empezar.", "No se encontró el archivo {}.", "{} y {} están aquí."),
        *("Vimos {} antes de que llegara {}.", "La carta dice {}, y luego {}.", "¿Es {} o {}?"),
        *("Me dio {} por {}.", "Envía {} a mi hermano con {}, por favor."),
        *("{}, {} y {} están en el libro.", "El hombre con {} escribió {} y luego {}."),
        *("Toma primero {}, luego {} y al final {}.", "Entre {} y {} solo hay {}."),
    ),
}
"""One to three places in each, by language."""
_MOST = 3
_FIRST_NUMBERS = (1, 1, 2, 1, 3, 5)


def templates_for(language: str, sentences: Sequence[str]) -> Sequence[str]:
    """The templates of a language; for one without any, sentences with a place in each.

    Args:
        language: BCP-47 code of the source language.
    """
    if (found := TEMPLATES.get(primary_subtag(language))) is not None:
        return found
    return [text for sentence in sentences for text in _with_place(sentence)]


def numbered_templates(templates: Sequence[str], count: int) -> Iterator[tuple[str, list[int]]]:
    """Templates in an endless cycle, with the numbers of the things for their places."""
    for index in range(count):
        template = templates[index % len(templates)]
        first = _FIRST_NUMBERS[index // len(templates) % len(_FIRST_NUMBERS)]
        yield template, list(range(first, first + template.count("{}")))


def _with_place(sentence: str) -> Iterator[str]:
    """The sentence with a place before, after and between its words."""
    words = sentence.replace("{", "(").replace("}", ")").split()
    for place in sorted({0, len(words) // 2, len(words)}):
        yield " ".join([*words[:place], "{}", *words[place:]])
