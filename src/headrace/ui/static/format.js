// Numbers, sizes and times as text.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

export const whole = (n) => (n === null || n === undefined ? "" : WHOLE.format(n));
export const short = (n) => (Number.isFinite(n) ? SHORT.format(n) : "");

// A number as text, which may have more digits than JavaScript's numbers.
export const grouped = (text) => text === null ? null
  : text.replace(/^(-?)(\d+)/, (_, sign, digits) => sign + digits.replace(/\B(?=(\d{3})+$)/g, ","));

export const counted = (n, one) => `${whole(n)} ${one}${n === 1 ? "" : "s"}`;

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 0.001) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 90) return `${seconds.toFixed(1)} s`;
  if (seconds < 5400) return `${(seconds / 60).toFixed(0)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(0)} days`;
}

export function bytes(n) {
  if (n === null || n === undefined) return "";
  for (const unit of ["bytes", "kB", "MB", "GB"]) {
    if (n < 10000 || unit === "GB") return `${WHOLE.format(n)} ${unit}`;
    n /= 1000;
  }
  return "";
}

// Time since a moment, given in seconds.
export function ago(seconds) {
  const since = Date.now() / 1000 - seconds;
  return since < 1.5 ? "just now" : `${since < 90 ? `${Math.round(since)} s` : duration(since)} ago`;
}

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString();

// Event time behind the clock of this machine; nothing for watermarks that are numbers.
export function behind(mark) {
  const time = typeof mark === "string" ? Date.parse(mark) : NaN;
  return Number.isNaN(time) ? "" : duration(Math.max(0, (Date.now() - time) / 1000));
}
