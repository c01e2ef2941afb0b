"""Strategic merge patch of the built-in kinds.

Called by `writing` for `application/strategic-merge-patch+json`. Pure; changes its target in place. Where no list with
a merge key and no directive occurs, the result is that of a JSON merge patch.

Directives: `$patch` (replace, delete, merge), `$setElementOrder/<list>`, `$deleteFromPrimitiveList/<list>`,
`$retainKeys`.

Source: "Strategic Merge Patch" in the contributors' documentation of the Kubernetes API (sig-api-machinery).
"""

from __future__ import annotations

from typing import Any, Final

from cotide_sim.apiserver.patch.merge_keys import merge_keys
from cotide_sim.apiserver.refusals import bad_request

_ORDER: Final = "$setElementOrder/"
_DROP: Final = "$deleteFromPrimitiveList/"
_RETAIN: Final = "$retainKeys"
_DIRECTIVE: Final = "$patch"


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
    for key, value in patch.items():
        if key not in (_DIRECTIVE, _RETAIN) and not key.startswith(_ORDER):
            _merge_field(target, key, value)
    for key, order in patch.items():
        if key.startswith(_ORDER):
            if not isinstance(order, list):
                raise bad_request(f"{key} must be a list")
            field = key.removeprefix(_ORDER)
            if isinstance(target.get(field), list):
                target[field] = _ordered(field, target[field], order)
    return target


def _merge_field(target: dict[str, Any], key: str, value: Any) -> None:
    before = target.get(key)
    if key.startswith(_DROP):
        if not isinstance(value, list):
            raise bad_request(f"{key} must be a list")
        field = key.removeprefix(_DROP)
        target[field] = [item for item in target.get(field) or () if item not in value]
    elif value is None or (isinstance(value, dict) and value.get(_DIRECTIVE) == "delete"):
        target.pop(key, None)
    elif isinstance(value, dict):
        target[key] = _merge_object(before if isinstance(before, dict) else {}, value)
    elif isinstance(value, list):
        target[key] = _merge_list(key, before if isinstance(before, list) else [], value)
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
        return before + [item for item in patch if item not in before]
    key = keys[0]
    result = list(before)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"an item of {field} lacks its merge key {key}: {item!r}")
        index = next((i for i, old in enumerate(result) if isinstance(old, dict) and old.get(key) == item[key]), None)
        if item.get(_DIRECTIVE) == "delete":
            result = [old for old in result if not (isinstance(old, dict) and old.get(key) == item[key])]
        elif index is None:
            result.append(_plain(item))
        else:
            result[index] = _merge_object(result[index], item)
    return result


def _ordered(field: str, items: list[Any], order: list[Any]) -> list[Any]:
    """Return items in the order that the patch gives; those it doesn't name stay behind their neighbours."""
    keys = merge_keys(field, items, order)
    if keys is None:
        return items

    def mark(item: Any) -> Any:
        return item.get(keys[0]) if keys and isinstance(item, dict) else item

    wanted = [mark(item) for item in order]
    ranks: list[tuple[float, int]] = []
    last = -1.0
    for index, item in enumerate(items):
        if mark(item) in wanted:
            last = float(wanted.index(mark(item)))
            ranks.append((last, -1))
        else:
            ranks.append((last, index))
    return [item for _, item in sorted(zip(ranks, items, strict=True), key=lambda pair: pair[0])]
