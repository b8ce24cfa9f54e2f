"use strict";
// Light or dark: as the system says, until the reader presses the button.
const theme = (() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const listeners = [];
  function set(name) {
    document.documentElement.dataset.theme = name;
    listeners.forEach((listener) => listener());
  }
  set(system.matches ? "dark" : "light");
  system.addEventListener("change", () => set(system.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () =>
    set(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  return { colour, onChange: (listener) => listeners.push(listener) };
})();
