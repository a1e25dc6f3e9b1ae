"""The admission policy that refuses a wrong config in the words of `words`, made from the model.

Only what CEL has on the oldest API server is used: a server takes from a new policy what the
version before its own had, so 1.34 takes what 1.33 had. What is wrong with something is one text
with a line for each problem, because CEL can join texts, and not lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from textwrap import indent
from typing import Final

from trio_npu_dra.config import words
from trio_npu_dra.config.model import DRIVER
from trio_npu_dra.config.shape import Choice, Flag, Member, Object, Several, Shape, Text, shape

_VALUE: Final = "\ue000"
_NAME: Final = "\ue001"
_SIZE: Final = "\ue002"
_FIRST: Final = "\ue003"
_INDEX: Final = "\ue004"
_ORIGIN: Final = "\ue005"
_TOLD: Final = "\ue006"
"""Stand in a sentence for what only CEL knows."""

_HEAD: Final = """\
# Made by `just config` from trio_npu_dra/config: change it there.
#
# Refuses a config when it is written if this driver would refuse it when it prepares a claim, in
# the same words. So the author sees the error at once, not in the events of a waiting pod. The
# driver has the last word in any case.
#
# If you change --driver-name of the DaemonSet, change the name here too.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: ascend-npu-dra-config
spec:
  # Claims of other drivers pass through here: a fault of this policy must not stop them.
  failurePolicy: Ignore
  matchConstraints:
    resourceRules:
    # The specs of these kinds never change, so updates need no check.
    - apiGroups: ["resource.k8s.io"]
      apiVersions: ["*"]
      operations: ["CREATE"]
      resources: ["resourceclaims", "resourceclaimtemplates"]
    - apiGroups: ["resource.k8s.io"]
      apiVersions: ["*"]
      operations: ["CREATE", "UPDATE"]
      resources: ["deviceclasses"]
  variables:
"""
_TAIL: Final = """\
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: ascend-npu-dra-config
spec:
  policyName: ascend-npu-dra-config
  validationActions: ["Deny"]
"""

_CONFIGS: Final = """\
request.resource.resource == "deviceclasses" ? object.spec.?config.orValue([]) :
request.resource.resource == "resourceclaims" ? object.spec.?devices.?config.orValue([]) :
object.spec.spec.?devices.?config.orValue([])"""
_PARAMETERS: Final = f"""\
variables.configs.filter(config, config.?opaque.?driver.orValue("") == "{DRIVER}")
.map(config, config.opaque.?parameters.orValue(null))"""
_OBJECTS: Final = "variables.parameters.map(given, type(given) == map ? given : dyn({}))"


def policy_yaml() -> str:
    """The manifest of the policy and its binding."""
    root, given = shape(), _Place("given")
    fields = {member.name: _for_each_object(_member(member, given)) for member in root.fields}
    variables = {
        "configs": _CONFIGS,
        "parameters": _PARAMETERS,
        "objects": _OBJECTS,
        "unprintable": _unprintable(),
        **fields,
        "unknownFields": _for_each_object(_unknown(root, given)),
        "problems": _all_problems(root, (*fields, "unknownFields")),
    }
    validation = f"""\
  validations:
  - expression: size(variables.problems) == 0
    message: an opaque config for {DRIVER} is wrong
    messageExpression: |-
{indent(_message(), " " * 6)}
"""
    return _HEAD + "".join(_variable(*each) for each in variables.items()) + validation + _TAIL


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value is.

    Attributes:
        value: The value, in CEL.
        path: Its path in the config, with stand-ins.
        known: What they stand for, in CEL.
    """

    value: str
    path: str = ""
    known: Mapping[str, str] = field(default_factory=dict)

    def member(self, name: str) -> _Place:
        """A field of it."""
        return replace(self, value=f"{self.value}.{name}", path=self.within(name))

    def within(self, name: str) -> str:
        """The path of a field of it."""
        return f"{self.path}.{name}" if self.path else name

    def say(self, sentence: str, **known: str) -> str:
        """A sentence, in CEL.

        Args:
            sentence: A text with stand-ins.
            known: What others than those of the path stand for.
        """
        stand_ins, parts, text = {**self.known, **known}, [], ""
        for character in sentence:
            if character in stand_ins:
                parts += [_quoted(text)] * bool(text) + [stand_ins[character]]
                text = ""
            else:
                text += character
        return " + ".join([*parts, *[_quoted(text)] * bool(text)])

    def wrong(self, write: str) -> str:
        """That the value is wrong, in CEL."""
        sentence = words.wrong(self.path or words.ROOT, _VALUE, write)
        return self.say(sentence, **{_VALUE: _show(self.value)})

    def too_long(self, things: str, limit: int) -> str:
        """That it has too much of something, in CEL."""
        sentence = words.too_long(self.path, _SIZE, things, limit)
        return self.say(sentence, **{_SIZE: f"string(size({self.value}))"})


# --- what is wrong with a value ------------------------------------------------------------------


def _member(member: Member, owner: _Place) -> str:
    """With a field of an object."""
    here = owner.member(member.name)
    absent = '""'
    if member.is_required:
        absent = here.say(words.missing(here.path, member.shape.write))
    return f'!("{member.name}" in {owner.value}) ? {absent} :\n{_check(member.shape, here)}'


def _check(what: Shape, place: _Place) -> str:
    """With a value that is there."""
    value = place.value
    if isinstance(what, Choice):
        return f'{value} in {_list(what.values)} ? "" :\n{place.wrong(what.write)}'
    if isinstance(what, Flag):
        return f'type({value}) == bool ? "" :\n{place.wrong(what.write)}'
    if isinstance(what, Text):
        return _check_text(what, place)
    if isinstance(what, Object):
        members = [_member(member, place) for member in what.fields]
        inner = _joined([*members, _unknown(what, place)])
        return f"type({value}) != map ?\n{place.wrong(what.write)} :\n{inner}"
    return _check_items(what, place)


def _check_text(what: Text, place: _Place) -> str:
    value = place.value
    wrong = place.say(words.wrong(place.path, _VALUE, what.write))
    checks = [
        f"type({value}) != string ? {wrong} :",
        f"size({value}) > {what.max_length} ? {place.too_long('characters', what.max_length)} :",
        f"!{value}.matches(r'{what.pattern}') ? {wrong} :",
    ]
    if what.reserved:
        taken = place.say(words.reserved(place.path, _VALUE))
        checks.append(f"{value} in {_list(what.reserved)} ? {taken} :")
    return _filled("\n".join([*checks, '""']), _VALUE, _show(value))


def _check_items(what: Several, place: _Place) -> str:
    """Names are compared only if nothing else is wrong."""
    value, path = place.value, f"{place.path}[{_INDEX}]"
    item = _Place("item", path, {_INDEX: "string(index)"})
    repeated = item.say(
        words.repeated(f"{path}.name", _VALUE, f"{place.path}[{_FIRST}].name"),
        **{_VALUE: _show_text("name"), _FIRST: "string(names.indexOf(name))"},
    )
    return f"""\
type({value}) != list ?
{place.wrong(what.write)} :
size({value}) > {what.max_length} ? {place.too_long("entries", what.max_length)} :
[
  {value}.transformList(index, item,
{indent(_check(what.item, item), " " * 4)})
  .filter(text, text != "").join("\\n")
].map(text, text != "" ? text :
  [{value}.map(item, item.name)].map(names, names.transformList(index, name,
    names.indexOf(name) == index ? "" :
    {repeated})
  .filter(text, text != "").join("\\n").split("\\n")[0])[0])[0]"""


def _unknown(what: Object, place: _Place) -> str:
    """With an object that has fields which nobody knows."""
    path = place.within(_NAME)
    one = place.say(words.unknown(path, what.names))
    size = {_SIZE: "string(size(names) - 1)"}
    several = place.say(words.several_unknown(path, _SIZE, what.names), **size)
    texts = f'size(names) == 0 ? "" :\nsize(names) == 1 ? {one} :\n{several}'
    return f"""\
[{place.value}.filter(name, !(name in {_list(what.names)}))].map(names,
{indent(_filled(texts, _NAME, _show_name("names.min()")), "  ")})[0]"""


def _all_problems(root: Object, variables: Iterable[str]) -> str:
    """A text for each config that is wrong."""
    texts = _joined(f"variables.{name}[index]" for name in variables)
    return f"""\
variables.parameters.transformList(index, given,
  type(given) != map ?
{indent(_Place("given").wrong(root.write), "  ")} :
{indent(texts, "  ")})
.filter(text, text != "")"""


def _message() -> str:
    """The first few problems of the first config that is wrong."""
    few, between = words.PROBLEMS_TOLD, _quoted(words.BETWEEN)
    first = ", ".join(f"told[{index}]" for index in range(few))
    place = _Place("")
    untold = place.say(words.untold(_SIZE), **{_SIZE: f"string(size(told) - {few})"})
    told = f"""\
[variables.problems[0].split("\\n")].map(told,
  size(told) <= {few} ? told.join({between}) :
  [{first}, {untold}].join({between}))[0]"""
    sentence = words.refusal_of(_TOLD, origin=_ORIGIN)
    return place.say(sentence, **{_ORIGIN: "request.kind.kind", _TOLD: told})


# --- pieces of CEL -------------------------------------------------------------------------------


def _for_each_object(expression: str) -> str:
    return f"variables.objects.map(given,\n{indent(expression, '  ')})"


def _joined(texts: Iterable[str]) -> str:
    inner = ",\n".join(indent(text, "  ") for text in texts)
    return f'[\n{inner}\n].filter(text, text != "").join("\\n")'


def _filled(texts: str, stand_in: str, shown: str) -> str:
    """One of some texts, with a value in the place of its stand-in."""
    mark = "{name}" if stand_in == _NAME else "{value}"
    return f"""\
[
{indent(texts.replace(stand_in, mark), "  ")}
].map(text, text == "" ? "" : text.replace("{mark}",
{indent(shown, "  ")}))[0]"""


def _show(value: str) -> str:
    """`words.show` in CEL."""
    return f"""\
[{value}].map(it,
  type(it) == string ? {_show_text("it")} :
  type(it) == bool ? (it ? "true" : "false") : type(it) == int ? string(it) :
  it == null ? "null" : type(it) == list ? "a list" : type(it) == map ? "an object" :
  "a number")[0]"""


def _show_text(text: str) -> str:
    return f"""\
{_cut(text)}.map(cut,
    cut.matches(variables.unprintable) ? "{words.UNPRINTABLE_TEXT}" : '"' + cut + '"')[0]"""


def _show_name(name: str) -> str:
    """`words.show_name` in CEL."""
    return f"""\
[{name}].map(it, {_cut("it")}.map(cut,
    cut.matches(variables.unprintable) ? "{words.UNPRINTABLE_NAME}" : cut)[0])[0]"""


def _cut(text: str) -> str:
    """A list of the text, which is cut before it is searched: that costs by its length."""
    most = words.SHOWN
    return f'[size({text}) > {most} ? {text}.substring(0, {most}) + "..." : {text}]'


def _unprintable() -> str:
    """A regular expression, in RE2."""
    ranges = (
        f"\\x{{{first:x}}}-\\x{{{last:x}}}" if first < last else f"\\x{{{first:x}}}"
        for first, last in words.HIDDEN
    )
    return f"r'[{''.join(ranges)}]'"


def _list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_quoted, texts))}]"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _variable(name: str, expression: str) -> str:
    return f"  - name: {name}\n    expression: |-\n{indent(expression, ' ' * 6)}\n"
