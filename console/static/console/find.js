// The search dialog: Ctrl-K, Cmd-K or the link in the top bar opens it, and the arrow keys go through the results.
// Without this script the link opens the page of the search.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const dialog = document.getElementById("find");
  if (!dialog) return;
  const words = document.getElementById("find-words");
  const results = () => [...dialog.querySelectorAll("[data-result]")];

  function open() {
    if (!dialog.open) dialog.showModal();
    words.select();
    htmx.trigger(words, "opened");
  }

  function step(by) {
    const places = [words, ...results()];
    const next = places.indexOf(document.activeElement) + by;
    places[Math.max(0, Math.min(next, places.length - 1))].focus();
  }

  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      open();
    }
  });
  for (const link of document.querySelectorAll("[data-find]")) {
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      open();
    });
  }
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      step(event.key === "ArrowDown" ? 1 : -1);
    }
  });
  dialog.addEventListener("click", (event) => {
    // A click on the dialog itself is one on its backdrop.
    if (event.target === dialog || event.target.closest("[data-close]")) dialog.close();
  });
  words.form.addEventListener("submit", (event) => {
    // Enter opens the first result. If the results are not there yet, the form leads to the page with all of them.
    const shown = dialog.querySelector("[data-found]");
    const [first] = results();
    if (first && shown.dataset.found === words.value.trim()) {
      event.preventDefault();
      first.click();
    }
  });
  // The page of the search shows the error.
  dialog.addEventListener("htmx:responseError", () => words.form.submit());
  dialog.addEventListener("htmx:beforeSwap", (event) => {
    // The session has ended: the response is the sign-in page.
    if (new URL(event.detail.xhr.responseURL).pathname !== words.form.getAttribute("action")) {
      event.detail.shouldSwap = false;
      window.location.reload();
    }
  });
});
