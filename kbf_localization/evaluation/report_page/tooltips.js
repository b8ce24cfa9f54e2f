// What a metric means, shown when it is pointed at, focused or tapped: the text of its data-tip.
(() => {
  const box = document.createElement("div");
  box.id = "tip";
  box.setAttribute("role", "tooltip");
  box.hidden = true;
  document.body.append(box);
  let owner = null;

  function hide() {
    if (owner) owner.removeAttribute("aria-describedby");
    owner = null;
    box.hidden = true;
  }

  function show(target) {
    if (target === owner) return;
    hide();
    owner = target;
    owner.setAttribute("aria-describedby", "tip");
    box.textContent = target.dataset.tip;
    box.hidden = false;
    place();
  }

  function place() {
    if (!owner) return;
    const at = owner.getBoundingClientRect(), own = box.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.left, document.documentElement.clientWidth - own.width - 8));
    const below = at.bottom + 6, above = at.top - own.height - 6;
    box.style.left = `${left}px`;
    box.style.top = `${below + own.height > innerHeight && above > 0 ? above : below}px`;
  }

  const tipped = (event) => event.target instanceof Element && event.target.closest("[data-tip]");
  for (const kind of ["pointerover", "focusin", "click"]) document.addEventListener(kind, (event) => {
    const target = tipped(event);
    if (target) show(target); else if (kind !== "focusin") hide();
  });
  document.addEventListener("focusout", hide);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  addEventListener("scroll", place, { passive: true, capture: true });
})();
