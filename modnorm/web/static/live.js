// Replaces the parts marked `data-live` with those of a fresh copy of the page.
// A part that is missing from the copy has ended: the whole page is loaded again.
"use strict";

const PAUSE = 2000;

async function refresh() {
  const response = await fetch(location.href, { cache: "no-store" });
  if (!response.ok) {
    throw new Error(String(response.status));
  }
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const old of document.querySelectorAll("[data-live]")) {
    const part = fresh.getElementById(old.id);
    if (part === null) {
      location.reload();
      return;
    }
    if (part.outerHTML !== old.outerHTML) {
      old.replaceWith(document.adoptNode(part));
    }
  }
}

async function follow() {
  const lost = document.getElementById("lost");
  while (document.querySelector("[data-live]") !== null) {
    await new Promise((resume) => setTimeout(resume, PAUSE));
    if (document.hidden) {
      continue;
    }
    const reached = await refresh().then(() => true, () => false);
    if (lost !== null) {
      lost.hidden = reached;
    }
  }
}

follow();
