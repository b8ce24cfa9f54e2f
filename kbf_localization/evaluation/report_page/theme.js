"use strict";
// Light or dark: as the system says, until the reader presses the button.
const theme = (() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const listeners = [], known = new Map();
  function set(name) {
    document.documentElement.dataset.theme = name;
    known.clear();
    listeners.forEach((listener) => listener());
  }
  set(system.matches ? "dark" : "light");
  system.addEventListener("change", () => set(system.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () =>
    set(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  // Asked for thousands of times a frame, so remembered.
  function colour(name) {
    if (!known.has(name)) known.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
    return known.get(name);
  }
  return { colour, onChange: (listener) => listeners.push(listener) };
})();
