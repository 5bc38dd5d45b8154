// The state of the page in the URL's fragment, which browsers don't send to servers.

const DEFAULTS = {
  from: "", to: "", text: "", kind: "cross", layer: "mean", head: "mean", unit: "word", shade: "",
};

/** The state in the fragment `hash`, by default that of the URL. */
export function readFragment(hash = location.hash) {
  const given = new URLSearchParams(hash.slice(1));
  const entries = Object.entries(DEFAULTS).map(([key, value]) => [key, given.get(key) ?? value]);
  return Object.fromEntries(entries);
}

/** Put a state into the URL. */
export function writeFragment(state) {
  const changed = Object.entries(DEFAULTS)
    .map(([key, value]) => [key, String(state[key] ?? value)])
    .filter(([key, value]) => value !== DEFAULTS[key]);
  const fragment = new URLSearchParams(changed).toString();
  history.replaceState(null, "", fragment ? `#${fragment}` : location.pathname);
}
