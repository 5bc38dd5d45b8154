"""Client of a Dragoman server, which translates text over gRPC.

    import dragoman

    with dragoman.Client("127.0.0.1:50051", timeout=10.0) as client:
        batch = client.translate(["A dog is running."], source="en", target="de")
        for translation in batch.translations:
            print(translation.error or translation.text)

`Client` is for threads, `AsyncClient` for asyncio; both have these methods:

    translate    many texts; returns a TranslationBatch with one Translation for each text
    stream       one text; yields pieces of its translation as they are made, then a StreamEnd
    score        texts with translations; returns a ScoreBatch: how probable each translation is
    attention    one text and its translation; returns an AttentionView: where the model looked
    translate_document  a file; returns a DocumentTranslation with the translated file
    detect       many texts; returns for each the DetectedLanguages that it may be in
    list_models  returns a ModelInfo for each model of the server
    list_languages  returns LanguageGroups, with all directions of the server
    get_model    returns the ModelInfo of one model
    close        closes the connection, as the end of the `with` block does

A call that fails raises `TranslationError`. A text that fails has one as its `error`, and does not
fail the others. The stubs are `dragoman.v1.translation_pb2` and `dragoman.v1.translation_pb2_grpc`.
"""

from dragoman import client
from dragoman.client import *  # noqa: F403

# The one version of the server, the client and the images.
__version__ = "0.2.0"

__all__ = ["__version__"]
__all__ += client.__all__
