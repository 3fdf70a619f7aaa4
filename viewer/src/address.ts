// The address of a step: everything that a reader chose stands behind # in the URL.

import { useEffect, useState } from "preact/hooks";

export interface Address {
  e: string; // how the id of the episode begins, after "episode-"
  s: string; // step
  b: string; // the second episode
  c: string; // name of the claim that was opened
  m: string; // its model
  q: string; // filters, as name:value pairs
  o: string; // order
}

const NAMES: (keyof Address)[] = ["e", "s", "b", "c", "m", "q", "o"];

export function readAddress(): Address {
  const given = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(NAMES.map((name) => [name, given.get(name) ?? ""])) as unknown as Address;
}

export function hrefOf(address: Address, changes: Partial<Address>): string {
  const next = { ...address, ...changes };
  const given = new URLSearchParams();
  for (const name of NAMES) if (next[name]) given.set(name, next[name]);
  return `#${given.toString()}`;
}

export function useAddress(): [Address, (changes: Partial<Address>, push?: boolean) => void] {
  const [address, set] = useState(readAddress);
  useEffect(() => {
    const follow = () => set(readAddress());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  const change = (changes: Partial<Address>, push = false) => {
    const next = { ...readAddress(), ...changes };
    history[push ? "pushState" : "replaceState"](null, "", hrefOf(next, {}));
    set(next);
  };
  return [address, change];
}

export const short = (id: string) => id.replace(/^episode-/, "").slice(0, 12);
