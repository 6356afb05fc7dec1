// Renders the preview of the branding again while its form is filled in. Without scripts the button does it.
const preview = document.querySelector("[data-preview] button");
const form = preview.form;
let waiting;
form.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => form.requestSubmit(preview), 400);
});
