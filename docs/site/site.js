// The explorer in its frame is as high as its page, and follows the site's switch between light and dark. Opened from a
// folder a frame is foreign to its page: it has scroll bars, and follows the system alone.
const follow = () => {
  const scheme = document.body.dataset.mdColorScheme === "slate" ? "dark" : "light";
  for (const frame of document.querySelectorAll("iframe.explorer"))
    for (const part of frame.contentDocument?.querySelectorAll(":root, .pro-app") ?? []) part.style.colorScheme = scheme;
};
const fit = (frame) => {
  const page = frame.contentDocument?.documentElement;
  if (page) new ResizeObserver(() => { frame.style.height = `${page.offsetHeight + 2}px`; }).observe(page);
};
new MutationObserver(follow).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
for (const frame of document.querySelectorAll("iframe.explorer"))
  frame.addEventListener("load", () => { follow(); fit(frame); });
follow();
