// The theme. It is loaded before the page is drawn, so that the page never flashes in the other one.
// Without a choice, the theme is that of the system.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => {
    try {
      return localStorage.getItem("truelike.theme");
    } catch {
      return null; // storage is blocked
    }
  };
  const isDark = () => (chosen() ?? (system.matches ? "dark" : "light")) === "dark";

  function show() {
    root.dataset.theme = isDark() ? "dark" : "light";
    document.getElementById("theme")?.setAttribute("aria-pressed", String(isDark()));
  }

  show();
  system.addEventListener("change", show);
  addEventListener("storage", show);
  document.addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme")?.addEventListener("click", () => {
      const theme = isDark() ? "light" : "dark";
      try {
        localStorage.setItem("truelike.theme", theme);
        show();
      } catch {
        root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
      }
    });
  });
})();
