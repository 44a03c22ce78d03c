// What every view makes its page of: elements, and words that are written only when they change.

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== false && value !== null) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

// Writing the same words again would make a browser lay out the page ten times a second.
export function write(node, words) {
  if (node.textContent !== words) node.textContent = words;
}
