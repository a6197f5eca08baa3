"use strict";
// Before the first paint: the theme that the reader chose, if the browser kept it.
(function () {
  document.documentElement.classList.add("js");
  try {
    const kept = window.localStorage.getItem("pezoo-theme");
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch {
    // Storage is refused to some pages from the disk; the system's theme stays.
  }
})();
