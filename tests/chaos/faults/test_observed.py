import gzip
import json

from observed import Observed

REFLECTORS = "limit=2000&timeoutSeconds=400"


def shown(version):
    return {"metadata": {"resourceVersion": str(version)}}


def event(kind, version):
    return json.dumps({"type": kind, "object": shown(version)}).encode() + b"\n"


def test_of_a_list_its_objects_count_and_not_its_own_version():
    observed = Observed()
    body = json.dumps({"metadata": {"resourceVersion": "99"}, "items": [shown(7), shown(5)]}).encode()
    observed.page(REFLECTORS, gzip.compress(body), "gzip")
    assert observed.version == 7
    observed.page("limit=1", json.dumps({"items": [shown(50)]}).encode())
    assert observed.version == 7


def test_of_a_watch_whole_lines_count_and_bookmarks_do_not():
    observed = Observed()
    lines = observed.watch(REFLECTORS)
    text = event("ADDED", 8) + event("BOOKMARK", 90) + event("DELETED", 9)
    lines.take(text[:20])
    assert observed.version == 0
    lines.take(text[20:-1])
    assert observed.version == 8
    lines.take(text[-1:])
    assert observed.version == 9


def test_a_watch_that_is_not_a_reflectors_does_not_count():
    observed = Observed()
    observed.watch("watch=true&resourceVersion=3").take(event("ADDED", 8))
    assert observed.version == 0
