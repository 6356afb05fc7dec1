// Adds a button that copies to each element with `data-copy`. This script's element states the words.
const { copy, copied } = document.getElementById("copy").dataset;
// Browsers have no clipboard on pages without TLS; one click then still selects the whole text.
for (const source of navigator.clipboard ? document.querySelectorAll("main [data-copy]:not(script)") : []) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "record-copy text-link";
  button.textContent = copy;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = copied;
    setTimeout(() => { button.textContent = copy; }, 2000);
  });
  source.after(button);
}
