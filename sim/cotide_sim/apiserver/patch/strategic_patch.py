"""Strategic merge patch of the built-in kinds.

Called by `writing` for `application/strategic-merge-patch+json`. Pure; changes its target in place. Where no list with
a merge key and no directive occurs, the result is that of a JSON merge patch.

Directives: `$patch` (replace, delete, merge), `$setElementOrder/<list>`, `$deleteFromPrimitiveList/<list>`,
`$retainKeys`.

Lists come in the order of `_ordered`, as the API server makes them.

Sources: "Strategic Merge Patch" and "Preserve Order in Strategic Merge Patch" in the contributors' documentation of the
Kubernetes API (sig-api-machinery).
"""

from __future__ import annotations

from typing import Any, Final

from cotide_sim.apiserver.patch.merge_keys import merge_keys
from cotide_sim.apiserver.refusals import bad_request

_ORDER: Final = "$setElementOrder/"
_DROP: Final = "$deleteFromPrimitiveList/"
_RETAIN: Final = "$retainKeys"
_DIRECTIVE: Final = "$patch"
_NOTHING: Final = object()
"""The key of no item."""


def strategic_patch(target: Any, patch: Any) -> Any:
    """Return the target with the patch applied.

    Raises
    ------
    Refusal
        400 for a directive that does not exist, or a list item without its merge key.
    """
    if not isinstance(patch, dict):
        raise bad_request("a strategic merge patch must be an object")
    return _merge_object(target if isinstance(target, dict) else {}, patch)


def _merge_object(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return dict(_plain(patch))
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"unknown $patch directive: {directive!r}")
    if _RETAIN in patch:
        kept = patch[_RETAIN]
        if not isinstance(kept, list):
            raise bad_request("$retainKeys must be a list")
        target = {key: value for key, value in target.items() if key in kept}
    ordered = {key.removeprefix(_ORDER) for key in patch if key.startswith(_ORDER)}
    for field in ordered:
        _merge_in_order(target, field, patch)
    for key, value in patch.items():
        if key not in (_DIRECTIVE, _RETAIN) and key not in ordered and not key.startswith(_ORDER):
            _merge_field(target, key, value)
    return target


def _merge_in_order(target: dict[str, Any], field: str, patch: dict[str, Any]) -> None:
    """Merge a list in the order that the patch gives, whether or not the patch has items of it."""
    order, before, given = patch[_ORDER + field], target.get(field), patch.get(field)
    if not isinstance(order, list):
        raise bad_request(f"{_ORDER}{field} must be a list")
    if given is not None and not isinstance(given, list):
        raise bad_request(f"{field} must be a list, as it has an order")
    if isinstance(before, list):
        merged = before if given is None else _merge_list(field, before, given)
        target[field] = _ordered(merged, order, before, merge_keys(field, before, merged, order))
    elif given is not None:
        merged = _plain(given)
        target[field] = _ordered(merged, order, [], merge_keys(field, merged, order))


def _merge_field(target: dict[str, Any], key: str, value: Any) -> None:
    before = target.get(key)
    if key.startswith(_DROP):
        if not isinstance(value, list):
            raise bad_request(f"{key} must be a list")
        field = key.removeprefix(_DROP)
        if isinstance(target.get(field), list):
            dropped = {_token(item) for item in value}
            target[field] = [item for item in target[field] if _token(item) not in dropped]
    elif value is None or (isinstance(value, dict) and value.get(_DIRECTIVE) == "delete"):
        target.pop(key, None)
    elif isinstance(value, dict):
        target[key] = _merge_object(before if isinstance(before, dict) else {}, value)
    elif isinstance(value, list):
        target[key] = _merge_list(key, before, value) if isinstance(before, list) else _plain(value)
    else:
        target[key] = value


def _plain(value: Any) -> Any:
    """Return a patch's value as data: without its directives."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if not key.startswith("$") and item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value if not (isinstance(item, dict) and _DIRECTIVE in item)]
    return value


def _merge_list(field: str, before: list[Any], patch: list[Any]) -> list[Any]:
    if any(isinstance(item, dict) and item.get(_DIRECTIVE) == "replace" and len(item) == 1 for item in patch):
        return [_plain(item) for item in patch if not (isinstance(item, dict) and item.get(_DIRECTIVE) == "replace")]
    keys = merge_keys(field, before, patch)
    if keys is None:
        return [_plain(item) for item in patch]
    if not keys:
        return _ordered(_unique([*before, *patch]), patch, before, keys)
    key = keys[0]
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"an item of {field} lacks its merge key {key}: {item!r}")
    dropped = {_token(item[key]) for item in patch if item.get(_DIRECTIVE) == "delete"}
    result = [old for old in before if _token(_mark(old, keys)) not in dropped]
    merged = [item for item in patch if item.get(_DIRECTIVE) != "delete"]
    indexes = _first_indexes([old.get(key) if isinstance(old, dict) else _NOTHING for old in result])
    for item in merged:
        index = indexes.setdefault(_token(item[key]), len(result))
        if index == len(result):
            result.append(_plain(item))
        else:
            result[index] = _merge_object(result[index], item)
    return _ordered(result, merged, before, keys)


def _ordered(items: list[Any], order: list[Any], before: list[Any], keys: tuple[str, ...] | None) -> list[Any]:
    """Return items in the order of the patch; those that it does not name keep their order.

    Each of the latter comes before the first of the former that was behind it. So new items come first where the patch
    names nothing else, since no item was before them.

    Parameters
    ----------
    order : of the patch: its own items, or its order directive.
    before : the list as it was. keys : of `merge_keys`; None leaves all unchanged.
    """
    if keys is None:
        return items
    wanted = _first_indexes([_mark(item, keys) for item in order])
    was = _first_indexes([_mark(item, keys) for item in before])
    tokens = [_token(_mark(item, keys)) for item in items]
    named = sorted((at for at in range(len(items)) if tokens[at] in wanted), key=lambda at: wanted[tokens[at]])
    result: list[Any] = []
    following = 0
    for at, other in enumerate(items):
        if tokens[at] in wanted:
            continue
        while following < len(named) and not _stood_before(tokens[at], tokens[named[following]], was):
            result.append(items[named[following]])
            following += 1
        result.append(other)
    return result + [items[at] for at in named[following:]]


def _stood_before(one: Any, other: Any, was: dict[Any, int]) -> bool:
    return one in was and other in was and was[one] < was[other]


def _first_indexes(marks: list[Any]) -> dict[Any, int]:
    """Return the first index of each mark, by its `_token`: a list of a body of 3 MiB is not searched for each item."""
    found: dict[Any, int] = {}
    for at, mark in enumerate(marks):
        found.setdefault(_token(mark), at)
    return found


def _token(mark: Any) -> Any:
    """Return a hashable value for one that may be unhashable."""
    return repr(mark) if isinstance(mark, dict | list) else mark


def _mark(item: Any, keys: tuple[str, ...]) -> Any:
    """Return the identity of an item."""
    return item.get(keys[0]) if keys and isinstance(item, dict) else item


def _unique(items: list[Any]) -> list[Any]:
    return [items[at] for at in _first_indexes(items).values()]
