"""One HTTP client for all questions to real processes: making one costs 40 ms of CPU, a question a quarter of one."""

import httpx

WEB = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0), timeout=60.0)
"""For any thread. A connection for each question, so that none is left over from a process that was killed."""
