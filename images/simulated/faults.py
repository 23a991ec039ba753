"""Faults on demand: what a struck completion does differently. The profile says which are struck; no client can."""

from dataclasses import dataclass, replace

from images.simulated.profile import Fault
from images.simulated.requests import Plan

_CUTS = ("in_band_error", "truncated_close", "reset", "crash_at_request_n")


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a completion is sent. The defaults are those of a healthy one.

    cut: one of in_band_error (an error event, then [DONE]), truncated_close (the connection ends in mid-answer), reset
    (it is reset) and crash_at_request_n (the process dies at once), instead of token number `cut_after` + 1.
    """

    cut: str | None = None
    cut_after: int = 0
    stall_after: int = 0
    stall_s: float = 0.0
    tokens_per_chunk: int = 1
    events_per_write: int = 1
    surplus_tokens: int = 0
    omit_usage: bool = False
    hide_text: bool = False


def strike(faults: tuple[Fault, ...], request_number: int, plan: Plan) -> tuple[Plan, Behaviour]:
    """The plan and behaviour of the completion request of this number (from 1), after every fault that strikes it."""
    behaviour = Behaviour()
    for fault in faults:
        if fault.strikes(request_number):
            plan = _shorten(fault, plan)
            behaviour = _change(fault, behaviour, plan)
    return plan, behaviour


def _after(fault: Fault, plan: Plan) -> int:
    """The tokens before the fault, at least none and at most all but the last."""
    wanted = plan.output_tokens // 2 if fault.after_tokens is None else fault.after_tokens
    return max(0, min(wanted, plan.output_tokens - 1))


def _shorten(fault: Fault, plan: Plan) -> Plan:
    if fault.kind not in ("short_output", "abort"):
        return plan
    ended = fault.kind == "short_output"
    kept = _after(fault, plan) if ended else max(1, _after(fault, plan))
    return replace(
        plan,
        output=plan.output[:kept],
        ends_with_eos=ended,
        finish_reason="stop" if ended else "abort",
        stop_reason=None,
        text_length=min(kept, plan.text_length),
    )


def _change(fault: Fault, behaviour: Behaviour, plan: Plan) -> Behaviour:
    if fault.kind in _CUTS:
        return replace(behaviour, cut=fault.kind, cut_after=_after(fault, plan))
    if fault.kind == "stall":
        return replace(behaviour, stall_after=max(1, _after(fault, plan)), stall_s=fault.seconds)
    if fault.kind == "multi_token_chunks":
        return replace(behaviour, tokens_per_chunk=fault.size)
    if fault.kind == "coalesced":
        return replace(behaviour, events_per_write=fault.size)
    if fault.kind == "count_mismatch":
        return replace(behaviour, surplus_tokens=fault.size)
    if fault.kind == "no_usage":
        return replace(behaviour, omit_usage=True)
    if fault.kind == "empty_text":
        return replace(behaviour, hide_text=True)
    return behaviour
