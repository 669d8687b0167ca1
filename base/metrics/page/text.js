// Figures as people read them.

const STEPS = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

// Three digits and a letter, as in 1.49M; a dash for what isn't known.
export function short(value) {
  if (value === null || value === undefined) return "–";
  const [size, letter] = STEPS.find(([size]) => value >= size * 0.9995) ?? [1, ""];
  const figure = value / size;
  if (!letter && Number.isInteger(figure)) return String(figure);
  return `${figure.toFixed(figure < 9.995 ? 2 : figure < 99.95 ? 1 : 0)}${letter}`;
}

// All digits.
export const whole = (value) => value.toLocaleString("en-US");

export const percent = (share) => (share === null ? "–" : `${(100 * share).toFixed(1)} %`);

export const cycles = (count) => (count === null ? "–" : count.toFixed(1));

// Hours, minutes and seconds.
export function age(nanoseconds) {
  const seconds = Math.floor(nanoseconds / 1e9);
  const two = (number) => String(number).padStart(2, "0");
  return `${Math.floor(seconds / 3600)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
}
