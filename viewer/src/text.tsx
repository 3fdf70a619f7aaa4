// Text of others. It is only ever a text node; signs that would be invisible or turn others around are written out.

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

export function visible(text: string): string {
  return text.replace(HIDDEN, (sign) => `⟨U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

export function Foreign({ text }: { text: string }) {
  return <pre class="foreign" dir="ltr">{visible(text)}</pre>;
}

/** Which lines were not in the text before, by a longest common subsequence; long texts by their ends alone. */
export function newLines(before: string[], now: string[]): boolean[] {
  let [first, last] = [0, 0];
  while (first < before.length && first < now.length && before[first] === now[first]) first++;
  while (last < before.length - first && last < now.length - first && before[before.length - 1 - last] === now[now.length - 1 - last]) last++;
  const [old, fresh] = [before.slice(first, before.length - last), now.slice(first, now.length - last)];
  const marks = now.map((_, at) => at >= first && at < now.length - last);
  if (old.length * fresh.length > 250_000) return marks;
  const common = Array.from({ length: old.length + 1 }, () => new Uint16Array(fresh.length + 1));
  for (let i = old.length - 1; i >= 0; i--)
    for (let j = fresh.length - 1; j >= 0; j--)
      common[i][j] = old[i] === fresh[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  for (let i = 0, j = 0; i < old.length && j < fresh.length; ) {
    if (old[i] === fresh[j]) {
      marks[first + j] = false;
      i++;
      j++;
    } else if (common[i + 1][j] >= common[i][j + 1]) i++;
    else j++;
  }
  return marks;
}

const AROUND = 2; // unchanged lines shown beside a change

export function Changes({ before, now, whole }: { before: string | null; now: string; whole: boolean }) {
  const lines = visible(now).split("\n");
  if (before === null) return <Foreign text={now} />;
  const marks = newLines(visible(before).split("\n"), lines);
  const near = marks.map((_, at) => whole || marks.slice(Math.max(0, at - AROUND), at + AROUND + 1).some(Boolean));
  const shown = [];
  for (let at = 0; at < lines.length; at++) {
    if (near[at]) {
      shown.push(<span class={marks[at] ? "line new" : "line"}>{`${marks[at] ? "+ " : "  "}${lines[at]}\n`}</span>);
      continue;
    }
    let end = at;
    while (end < lines.length && !near[end]) end++;
    shown.push(<span class="line elided">{`  … ${end - at} unchanged lines\n`}</span>);
    at = end - 1;
  }
  return <pre class="foreign" dir="ltr">{shown}</pre>;
}
