// Shows the slug that the server would make of the name, while the field of the slug is empty.
const name = document.querySelector("input[name=name]");
const slug = document.querySelector("input[name=slug]");
const letters = { "ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "ł": "l" };
name.addEventListener("input", () => {
  slug.placeholder = name.value
    .normalize("NFC")
    .toLowerCase()
    .replace(/[äöüßæœøđðþł]/g, (letter) => letters[letter])
    .normalize("NFKD")
    .replace(/[\u0300-\u036f]/g, "")
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+/, "")
    .slice(0, 50)
    .replace(/-+$/, "");
});
