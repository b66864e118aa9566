"""Child process that decodes bodies: reads them from standard input and writes points to standard output.

It runs as `python -m shoal_service.wire.decoder.child` and loads NumPy and msgspec only. It has nothing to save, so it
ignores SIGINT and SIGTERM, which its parent handles. It ends when its pipe ends, which the end of the parent causes.
"""

import gc
import os
import signal
import traceback
from typing import IO

from shoal.errors import InputError
from shoal_service.errors import RequestError
from shoal_service.wire.decoder.frames import (
    Answer,
    DecodeRequest,
    Fault,
    fault_of,
    read_exactly,
    receive,
    send,
    send_points,
)
from shoal_service.wire.formats.decode import decode


def main() -> None:
    """Decode one body after another until the pipe ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    gc.disable()  # decoding makes thousands of lists and no cycles; searching for them took a sixth of the time
    answers_fd = os.dup(1)
    os.dup2(2, 1)  # other output must not get between the frames
    with open(0, "rb", buffering=0) as requests, open(answers_fd, "wb", buffering=0) as answers:
        try:
            while True:
                _serve_one(requests, answers)
        except (EOFError, BrokenPipeError):
            return


def _serve_one(requests: IO[bytes], answers: IO[bytes]) -> None:
    request = receive(requests, DecodeRequest)
    body = read_exactly(requests, request.n_bytes)
    try:
        points = decode(
            body,
            request.content_type,
            request.limits,
            content_encoding=request.content_encoding,
            n_features=request.n_features,
            columns=request.columns,
        )
    except (InputError, RequestError) as error:
        send(answers, Answer(fault=fault_of(error)))
        gc.collect()  # a traceback may hold the body in a cycle
    except MemoryError:
        raise  # end, so that the memory is free; the parent starts another child
    except Exception:  # noqa: BLE001  a bug: the parent raises and logs it
        send(answers, Answer(fault=Fault(None, traceback.format_exc())))
    else:
        send_points(answers, points)


if __name__ == "__main__":
    main()
