// Builds the one asset, ../src/goalscope/verdict/viewer/viewer.html (or the file given as argument): script and style within it,
// a content-security policy by their hashes, and the hash of all that it was made of.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const sources = ["package.json", "package-lock.json", "tsconfig.json", "build.mjs"];
sources.push(...readdirSync(join(here, "src")).sort().map((name) => `src/${name}`));
const digest = createHash("sha256");
for (const name of sources) digest.update(`${name}\0`).update(readFileSync(join(here, name))).update("\0");
const source = digest.digest("hex");

const made = await build({
  entryPoints: [join(here, "src/app.tsx")],
  bundle: true, minify: true, write: false, format: "iife", target: "es2022", charset: "ascii", legalComments: "none",
  jsx: "automatic", jsxImportSource: "preact", absWorkingDir: here,
});
const script = made.outputFiles[0].text.trim().replaceAll("</script", "<\\/script");
const style = readFileSync(join(here, "src/style.css"), "utf8").trim();
const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const policy = [
  "default-src 'none'", `script-src ${hash(script)}%shards%`, `style-src ${hash(style)}`, "base-uri 'none'",
  "form-action 'none'",
].join("; ");
const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta name="source" content="${source}">
<title>goalscope viewer</title>
<style>${style}</style>
</head>
<body>
<div id="app"><p class="wait">Reading episodes …</p></div>
<noscript><p>The viewer draws its pages by a script: allow scripts for this file.</p></noscript>
<!--data-->
<script>${script}</script>
</body>
</html>
`;
writeFileSync(process.argv[2] ?? join(here, "../src/goalscope/verdict/viewer/viewer.html"), page);
