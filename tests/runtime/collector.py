"""What a session's callbacks received, for tests of every session."""

from __future__ import annotations

import threading
from collections import defaultdict

from specbuild.runtime.policy import OFF
from specbuild.runtime.session import Chunk, Generate, Sampling

PATIENCE_S = 120


def ask(name, prompt, max_tokens=16, policy=OFF, **settings):
    return Generate(name, tuple(int(token) for token in prompt), max_tokens, policy, **settings)


class Collector:
    """Chunks by request, in the order in which they came."""

    def __init__(self):
        self.chunks: dict[str, list[Chunk]] = defaultdict(list)
        self._news = threading.Condition()

    def take(self, name, chunk):
        with self._news:
            self.chunks[name].append(chunk)
            self._news.notify_all()

    def submit(self, session, request):
        return session.submit(request, lambda chunk: self.take(request.id, chunk))

    def wait(self, names, chunks=None):
        """Until each has finished (or has so many chunks)."""

        def there():
            return all(
                self.chunks[name] and (self.chunks[name][-1].finish or (chunks and len(self.chunks[name]) >= chunks))
                for name in names
            )

        with self._news:
            assert self._news.wait_for(there, PATIENCE_S), {name: self.chunks[name][-1:] for name in names}

    def tokens(self, name):
        return [token for chunk in self.chunks[name] for token in chunk.token_ids]

    def finish(self, name):
        return self.chunks[name][-1].finish

    def drafted(self, name):
        return sum(chunk.drafted for chunk in self.chunks[name])


def run(session, requests):
    """All at once, to their ends."""
    collector = Collector()
    for request in requests:
        collector.submit(session, request)
    collector.wait([request.id for request in requests])
    return collector


def run_in_turn(session, requests):
    """One after the other."""
    collector = Collector()
    for request in requests:
        collector.submit(session, request)
        collector.wait([request.id])
    return collector


def sampled(seed, **settings):
    return Sampling(**{"temperature": 1.0, "seed": seed, **settings})
