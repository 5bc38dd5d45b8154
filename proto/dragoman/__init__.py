"""Client of a Dragoman server, which translates text over gRPC.

    import dragoman

    with dragoman.Client("127.0.0.1:50051", timeout=10.0) as client:
        batch = client.translate(["A dog is running."], source="en", target="de")
        for translation in batch.translations:
            print(translation.error or translation.text)

`Client` is for threads, `AsyncClient` for asyncio; both have these methods:

    translate    many texts; gives a TranslationBatch, one Translation for each text
    stream       one text; gives pieces of its translation as they come, and at last a StreamEnd
    score        texts with translations; gives a ScoreBatch: how probable each translation is
    list_models  gives a ModelInfo of each model that the server holds
    get_model    gives that of one model
    close        ends the connection, as leaving the `with` block does

A call that fails raises `TranslationError`; a text that fails has one as its `error`, and does not
fail the others. The stubs are `dragoman.v1.translation_pb2` and `dragoman.v1.translation_pb2_grpc`.
"""

from dragoman import client
from dragoman.client import *  # noqa: F403

# The one version of the server, the client and the images.
__version__ = "0.1.0"

__all__ = ["__version__"]
__all__ += client.__all__
