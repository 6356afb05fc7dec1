"""XML documents of SAML, read with limits and written: the only importer of lxml besides `federation.saml.signatures`.

A document is UTF-8 without document type, entity, comment and processing instruction, so that two parsers cannot read it
differently, and its size, elements, depth, attributes and namespaces are limited, so that neither parsing nor
canonicalization takes long. Readers get `Element`, a copy of names, attributes and text that no longer belongs to any document.
"""

import base64
import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lxml import etree

PROTOCOL: Final = "{urn:oasis:names:tc:SAML:2.0:protocol}"
ASSERTION: Final = "{urn:oasis:names:tc:SAML:2.0:assertion}"
METADATA: Final = "{urn:oasis:names:tc:SAML:2.0:metadata}"
SIGNATURE: Final = "{http://www.w3.org/2000/09/xmldsig#}"
ENCRYPTION: Final = "{http://www.w3.org/2001/04/xmlenc#}"
ENCRYPTION11: Final = "{http://www.w3.org/2009/xmlenc11#}"
PREFIXES: Final = {
    prefix: namespace[1:-1]
    for prefix, namespace in [
        ("samlp", PROTOCOL), ("saml", ASSERTION), ("md", METADATA), ("ds", SIGNATURE), ("xenc", ENCRYPTION),
    ]
}  # fmt: skip

LONGEST_RESPONSE: Final = 256 * 1024
DEEPEST: Final = 32  # an encrypted response has ten levels
# 65,000 elements, which 256 KiB can have, took 1.3 s to verify; the groups of a user are some hundreds.
MOST_ELEMENTS: Final = 5_000
# Canonicalization sorts attributes by insertion: 32,000 of them on one element took it 2 s.
MOST_ATTRIBUTES: Final = 64
MOST_PREFIXES: Final = 64
_DECLARATION: Final = re.compile(r"\ufeff?<\?xml[ \t\r\n]([^>]*)\?>")
_ENCODING: Final = re.compile(r"""encoding[ \t\r\n]*=[ \t\r\n]*["'](?!utf-8["'])""", re.IGNORECASE)
_VERSION: Final = re.compile(r"""version[ \t\r\n]*=[ \t\r\n]*["']1\.0["']""")
_ABSOLUTE_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[\x21-\x7e]+")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_CHUNK: Final = 16 * 1024
_XML_SPACE: Final = " \t\r\n"
_SPACES: Final = re.compile(r"[ \t\r\n]+")


class DocumentRejected(Exception):
    """The document is not XML as this module accepts it. The text says why and contains nothing of the document."""


@dataclass(frozen=True, slots=True)
class Element:
    """An element by value. Names have the form `{namespace}local`; `text` is that of an element without children."""

    tag: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    children: tuple["Element", ...] = ()

    def all(self, tag: str) -> list["Element"]:
        """Return the children with this name."""
        return [child for child in self.children if child.tag == tag]

    def descendants(self, tag: str) -> Iterator["Element"]:
        """Yield the elements below this element with this name, in document order."""
        for child in self.children:
            if child.tag == tag:
                yield child
            yield from child.descendants(tag)


def new_parser() -> Any:
    """Return an lxml parser that resolves no entity, loads nothing and keeps the limits of libxml2."""
    return etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False, encoding="utf-8")


def parse(
    document: bytes,
    *,
    longest: int = LONGEST_RESPONSE,
    most_elements: int = MOST_ELEMENTS,
    comments: bool = False,
) -> Any:
    """Return the root of the document as an lxml element. Raises DocumentRejected.

    `comments` accepts comments, for documents in which no signature is verified. Between the text of an element they are
    rejected there too: readers disagree on the text around them.
    """
    _check_text(document, longest, comments=comments)
    parser = etree.XMLPullParser(
        events=("start", "start-ns", "comment", "pi"),
        resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False, encoding="utf-8",
    )  # fmt: skip
    try:
        root = _check_events(_events(parser, document), most_elements, comments=comments)
    except etree.LxmlError as problem:
        raise DocumentRejected("This is not well-formed XML.") from problem
    if etree.ElementTree(root).docinfo.internalDTD is not None:
        raise DocumentRejected("The document has a document type.")
    return root


def read(
    document: bytes,
    *,
    longest: int = LONGEST_RESPONSE,
    most_elements: int = MOST_ELEMENTS,
    comments: bool = False,
) -> Element:
    """Return the root of the document by value. Raises DocumentRejected as `parse` does."""
    return element_of(parse(document, longest=longest, most_elements=most_elements, comments=comments))


def in_context(fragment: bytes, namespaces: Mapping[str | None, str], tag: str) -> bytes:
    """Return the one element of a fragment as a document (XML Encryption 1.1, "Text Wrapping").

    `namespaces` are those in scope where the fragment belongs, by prefix; the document declares them. `tag` is the name of
    the element. Raises DocumentRejected as `parse` does, and for anything but one element with this name.
    """
    declarations = "".join(
        f' xmlns{f":{prefix}" if prefix else ""}="{html.escape(namespace)}"' for prefix, namespace in namespaces.items()
    )
    root = parse(b"<context%s>%s</context>" % (declarations.encode(), fragment))
    if [child.tag for child in root] != [tag]:
        raise DocumentRejected("The fragment is not exactly one element with the expected name.")
    return bytes(etree.tostring(root[0], with_tail=False))


def element_of(node: Any, depth: int = 1) -> Element:
    """Return an lxml element by value. Raises DocumentRejected if it is too deep or has comments in its text."""
    if depth > DEEPEST:
        raise DocumentRejected(f"The document has more than {DEEPEST} levels.")
    parts = list(node)
    elements = [part for part in parts if isinstance(part.tag, str)]
    if len(elements) != len(parts) and not elements and "".join(node.itertext()).strip(_XML_SPACE):
        raise DocumentRejected("A comment divides a text.")
    return Element(
        tag=node.tag,
        attributes=dict(node.attrib),
        text="" if elements else (node.text or ""),
        children=tuple(element_of(part, depth + 1) for part in elements),
    )


def node_of(element: Element) -> Any:
    """Return the element as an lxml element. Raises ValueError for text that XML cannot express."""
    return _filled(etree.Element(element.tag, dict(element.attributes), nsmap=_prefixes_of(element)), element)


def write(element: Element) -> bytes:
    """Return the element as a document in UTF-8. Raises ValueError for text that XML cannot express."""
    return bytes(etree.tostring(node_of(element), xml_declaration=True, encoding="UTF-8"))


def decoded(text: str) -> bytes:
    """Decode base64 with line breaks, as XML and forms contain it. Raises DocumentRejected for any other spelling."""
    compact = _SPACES.sub("", text)
    if len(compact) % 4 or not _BASE64.fullmatch(compact):
        raise DocumentRejected("This is not base64.")
    return base64.b64decode(compact)


def _check_text(document: bytes, longest: int, *, comments: bool) -> None:
    """Reject what the parser must not see: other encodings, document types, comments, processing instructions.

    Outside CDATA sections, `<!` and `<?` begin nothing else (XML 1.0 section 2), so no parser has to find them.
    """
    if len(document) > longest:
        raise DocumentRejected(f"The document is longer than {longest} bytes.")
    try:
        text = document.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise DocumentRejected("The document is not UTF-8.") from problem
    if "\0" in text:
        raise DocumentRejected("The document contains a NUL.")
    declaration = _DECLARATION.match(text)
    if declaration and (_ENCODING.search(declaration[1]) or not _VERSION.search(declaration[1])):
        raise DocumentRejected("The document is not XML 1.0 in UTF-8.")
    rest = text[declaration.end() :] if declaration else text
    if "<?" in rest:
        raise DocumentRejected("The document has a processing instruction.")
    if re.search(r"<!(?!\[CDATA\[|--)", rest):
        raise DocumentRejected("The document has a document type.")
    if not comments and "<!--" in rest:
        raise DocumentRejected("The document has a comment.")


def _events(parser: Any, document: bytes) -> Iterator[tuple[str, Any]]:
    """Yield what the parser sees while it is fed, so that a document is not parsed beyond the limit that it exceeds."""
    for start in range(0, len(document), _CHUNK):
        parser.feed(document[start : start + _CHUNK])
        yield from parser.read_events()
    parser.close()
    yield from parser.read_events()


def _check_events(events: Iterator[tuple[str, Any]], most_elements: int, *, comments: bool) -> Any:
    """Check what the parser sees: namespaces, names, numbers, and again that nothing but elements is there.

    Returns the root, which is the first element.
    """
    root, elements, prefixes = None, 0, set()
    for event, subject in events:
        if event == "start-ns":
            prefix, namespace = subject
            prefixes.add(prefix)
            _check_names(prefix)
            # Canonicalization fails on relative ones, and has been taken for an empty result ("void canonicalization").
            if namespace and not _ABSOLUTE_URI.fullmatch(namespace):
                raise DocumentRejected("A namespace is not an absolute URI.")
        elif event == "start":
            root = subject if root is None else root
            elements += 1
            if elements > most_elements:
                raise DocumentRejected(f"The document has more than {most_elements} elements.")
            _check_names(subject.tag, *subject.attrib)
            if len(subject.attrib) > MOST_ATTRIBUTES:
                raise DocumentRejected(f"An element has more than {MOST_ATTRIBUTES} attributes.")
        elif not (event == "comment" and comments):
            raise DocumentRejected(f"The document has a {event}.")
    if len(prefixes) > MOST_PREFIXES:
        raise DocumentRejected(f"The document has more than {MOST_PREFIXES} namespace prefixes.")
    return root


def _check_names(*names: str) -> None:
    """Reject names that are not ASCII: lxml serializes them as character references, which are not XML there."""
    if not all(name.isascii() for name in names):
        raise DocumentRejected("A name of the document is not ASCII.")


def _prefixes_of(element: Element) -> dict[str, str]:
    """Return the declarations that the element and those below it need."""
    used = {element.tag[1:].partition("}")[0]}
    pending = list(element.children)
    while pending:
        child = pending.pop()
        used.add(child.tag[1:].partition("}")[0])
        pending += child.children
    return {prefix: namespace for prefix, namespace in PREFIXES.items() if namespace in used}


def _filled(node: Any, element: Element) -> Any:
    if element.text:
        node.text = element.text
    for child in element.children:
        _filled(etree.SubElement(node, child.tag, dict(child.attributes)), child)
    return node
