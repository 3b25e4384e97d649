"""What a script is recognised as, in words."""

from __future__ import annotations

from lockd.core.scripts.operations import Case, Keys, Operation, State, reply_text, shown

_WITH_TTL = {State.OWN_ENDLESS: State.OWN, State.ANOTHERS_ENDLESS: State.ANOTHERS}


def condition(case: Case) -> str:
    """The conditions for that. Empty: always."""
    return " and ".join(map(str, case.when))


def details(operation: Operation) -> dict[str, str]:
    """The parts that it has, by name."""
    found = {
        "operation": operation.kind.value,
        "key": str(operation.key) if operation.keys is Keys.ONE else "all KEYS",
        "value": "" if operation.value is None else shown(operation.value),
        "ttl": str(operation.ttl or ""),
        "keys": "" if operation.keys is Keys.ONE else operation.keys.value,
        "signal": str(operation.signal or ""),
        "replies": replies(operation),
    }
    return {name: text for name, text in found.items() if text}


def replies(operation: Operation) -> str:
    """By state. A state without TTL is named only if its reply differs."""
    texts = {state: reply_text(operation.outcome(state).reply) for state in State}
    same = {state for state, with_ttl in _WITH_TTL.items() if texts[state] == texts[with_ttl]}
    told = {state: text for state, text in texts.items() if state not in same}
    return " · ".join(f"{state.value}: {text}" for state, text in told.items())


def sentence(operation: Operation) -> str:
    """In a line, without the replies."""
    found = details(operation)
    words = [found["operation"], found["key"]]
    words += [f"{name} {found[name]}" for name in ("value", "ttl") if name in found]
    words += [found[name] for name in ("keys", "signal") if name in found]
    return " · ".join([" ".join(words[:2]), *words[2:]])
