// Proposes the slug while the name is typed, until the slug is edited. Without scripts the server makes one of the name.
const name = document.querySelector("input[name=name]");
const slug = document.querySelector("input[name=slug]");
const umlauts = { "ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "ł": "l" };
let proposed = slug.value === "";
slug.addEventListener("input", () => {
  proposed = slug.value === "";
});
name.addEventListener("input", () => {
  if (!proposed) return;
  slug.value = name.value
    .normalize("NFC")
    .toLowerCase()
    .replace(/[äöüßæœøđðþł]/g, (letter) => umlauts[letter])
    .normalize("NFKD")
    .replace(/[\u0300-\u036f]/g, "")
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 50)
    .replace(/-+$/, "");
});
