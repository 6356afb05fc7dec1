// Sends a form once: a second click does nothing until the next page is there. (A form that arrives twice all the same gets
// the first response again.)
"use strict";
{
  // After this time a form may be sent again: its response was a file, or the user has stopped the page from loading.
  const AGAIN_MILLISECONDS = 3000;

  function release(form) {
    delete form.dataset.sent;
    for (const button of form.querySelectorAll("button[aria-disabled]")) button.removeAttribute("aria-disabled");
  }

  document.addEventListener("submit", (event) => {
    const form = event.target;
    // Prevented: another script sends it. With a target: the page stays, and shows the response in a frame.
    if (event.defaultPrevented || form.getAttribute("method")?.toLowerCase() !== "post" || event.submitter?.formTarget) return;
    if (form.dataset.sent) {
      event.preventDefault();
      return;
    }
    form.dataset.sent = "true";
    // `disabled` would take the focus away, and the button's value out of the form.
    event.submitter?.setAttribute("aria-disabled", "true");
    setTimeout(release, AGAIN_MILLISECONDS, form);
  });

  // The page is shown again from the browser's memory.
  addEventListener("pageshow", () => document.querySelectorAll("form[data-sent]").forEach(release));
}
