// The explorer in its frame follows the site's switch between light and dark. Opened from a folder a frame is foreign to
// its page, and follows the system alone.
const follow = () => {
  const scheme = document.body.dataset.mdColorScheme === "slate" ? "dark" : "light";
  for (const frame of document.querySelectorAll("iframe.explorer"))
    for (const part of frame.contentDocument?.querySelectorAll(":root, .pro-app") ?? []) part.style.colorScheme = scheme;
};
new MutationObserver(follow).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
for (const frame of document.querySelectorAll("iframe.explorer")) frame.addEventListener("load", follow);
follow();
