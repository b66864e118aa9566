"""The decoding child: reads bodies from its standard input, writes points to its standard output, until that ends.

It is started as `python -m shoal_service.wire.child` and loads NumPy and msgspec only. It holds nothing worth saving,
so it listens to no signal: an interrupt or a stop of the whole process group is its parent's to handle, and when the
parent ends, however it ends, the pipe does too.
"""

import gc
import os
import signal
import traceback
from typing import IO

from shoal.errors import InputError
from shoal_service.errors import RequestError
from shoal_service.wire.decode import decode
from shoal_service.wire.frames import Answer, Ask, Fault, fault_of, read_exactly, receive, send, send_points


def main() -> None:
    """Serve until the pipe ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    gc.disable()  # decoding makes thousands of lists and no cycle; looking for one took a sixth of the time
    answers_fd = os.dup(1)
    os.dup2(2, 1)  # whatever else prints must not land among the frames
    with open(0, "rb", buffering=0) as asks, open(answers_fd, "wb", buffering=0) as answers:
        try:
            while True:
                _serve_one(asks, answers)
        except (EOFError, BrokenPipeError):
            return


def _serve_one(asks: IO[bytes], answers: IO[bytes]) -> None:
    ask = receive(asks, Ask)
    body = read_exactly(asks, ask.n_bytes)
    try:
        points = decode(
            body, ask.content_type, ask.limits, content_encoding=ask.content_encoding, n_features=ask.n_features
        )
    except (InputError, RequestError) as error:
        send(answers, Answer(fault=fault_of(error)))
        gc.collect()  # a traceback may hold the body in a cycle
    except MemoryError:
        raise  # end, give the memory back, and let the parent start another
    except Exception:  # noqa: BLE001  a fault of ours: the parent raises and logs it
        send(answers, Answer(fault=Fault(None, traceback.format_exc())))
    else:
        send_points(answers, points)


if __name__ == "__main__":
    main()
