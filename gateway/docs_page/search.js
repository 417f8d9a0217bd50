// The field that narrows /docs to what holds all the words that are typed. Without it the page is whole.

const field = document.createElement("input");
Object.assign(field, { type: "search", id: "search", autocomplete: "off", spellcheck: false });
const label = document.createElement("label");
label.htmlFor = field.id;
label.textContent = "Search routes, headers, codes, schemas";
const found = document.createElement("p");
found.setAttribute("role", "status");
const box = document.createElement("search");
box.append(label, field, found);
document.querySelector("header").append(box);

// Each is shown or hidden as a whole; links of the contents go with what they lead to.
const parts = [...document.querySelectorAll("article, #codes tbody tr, #headers dt")].map((element) => {
  const more = element.tagName === "DT" ? [element.nextElementSibling] : [];
  const link = element.id && document.querySelector(`nav a[href="#${CSS.escape(element.id)}"]`);
  return {
    text: [element, ...more].map((each) => each.textContent).join(" ").toLowerCase(),
    elements: [element, ...more, ...(link ? [link.parentElement] : [])],
  };
});

function narrow() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const { text, elements } of parts) {
    const shown = words.every((word) => text.includes(word));
    count += shown;
    for (const each of elements) each.hidden = !shown;
  }
  for (const each of document.querySelectorAll("main > section")) {
    const left = parts.some(({ elements: [first] }) => !first.hidden && each.contains(first));
    each.hidden = words.length > 0 && !left;
  }
  found.textContent = words.length ? `${count} found` : "";
}

let timer = null;
field.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(narrow, 100);
});
// A link leads to what is hidden, too.
addEventListener("hashchange", () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target?.closest("[hidden]")) return;
  field.value = "";
  narrow();
  target.scrollIntoView();
});
