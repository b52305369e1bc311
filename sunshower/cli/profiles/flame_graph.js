// Enlarges the box of a flame graph that is clicked, with those above and below it.

const WIDTH = 1200;
const CHARACTER = 6.6;
const boxes = [...document.querySelectorAll(".box")];

function show(chosen) {
  const [start, width] = [Number(chosen.dataset.x), Number(chosen.dataset.w)];
  for (const box of boxes) {
    const [rect, text] = [box.querySelector("rect"), box.querySelector("text")];
    const from = Math.max(0, (Number(box.dataset.x) - start) / width);
    const to = Math.min(1, (Number(box.dataset.x) + Number(box.dataset.w) - start) / width);
    const size = (to - from) * WIDTH;
    box.style.display = size > 0.3 ? "" : "none";
    if (size <= 0.3) continue;
    rect.setAttribute("x", from * WIDTH);
    rect.setAttribute("width", size);
    text.setAttribute("x", from * WIDTH + 3);
    const name = box.dataset.name;
    const room = Math.floor((size - 6) / CHARACTER);
    text.textContent = name.length <= room ? name : room > 2 ? `${name.slice(0, room - 1)}…` : "";
  }
}

for (const box of boxes) box.addEventListener("click", () => show(box));
