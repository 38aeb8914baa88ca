// Numbers, sizes and times for people.

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export const count = (number) => (number === null || number === undefined ? "–" : plain.format(number));

export function rate(number) {
  if (number === null || number === undefined) return "–";
  return number < 10 ? String(Math.round(number * 10) / 10) : short.format(number);
}

export function bytes(number) {
  if (number === null || number === undefined) return "–";
  let size = number;
  let unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit && size < 100 ? size.toFixed(1) : Math.round(size)} ${UNITS[unit]}`;
}

/** A span of seconds by its largest units: 3 d 4 h, 12 min, 850 ms. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0) return `-${span(-seconds)}`;
  if (seconds === 0) return "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${Math.round(seconds * 10) / 10} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** RFC 3339 with nanoseconds as local time to the millisecond. */
export function time(text) {
  if (!text) return "–";
  const at = new Date(text);
  if (Number.isNaN(at.valueOf())) return text;
  const two = (number) => String(number).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return `${day} ${clock}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** What a user typed into a local date and time field, as RFC 3339. */
export const moment = (local) => new Date(local).toISOString();

export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
