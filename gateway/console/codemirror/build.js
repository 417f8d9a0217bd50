// Makes ../static/codemirror.js: one module, with the licences of all that is in it at its head.
//
//     npm ci && npm run build

import { readFile, writeFile } from "node:fs/promises";
import { build } from "esbuild";

const TARGET = new URL("../static/codemirror.js", import.meta.url);
// The page's Content-Security-Policy allows no <style>. style-mod can do without, and does so in a
// shadow root; this has it do so in a document, too.
const [IN_SHADOW, ANYWHERE] = ["!root.head && root.adoptedStyleSheets", "root.adoptedStyleSheets"];

const adoptedStyles = {
  name: "adopted-styles",
  setup: ({ onLoad }) => onLoad({ filter: /style-mod\.js$/ }, async ({ path }) => {
    const source = await readFile(path, "utf8");
    if (source.split(IN_SHADOW).length !== 2) throw new Error("style-mod is another one now: look at how it mounts");
    return { contents: source.replace(IN_SHADOW, ANYWHERE), loader: "js" };
  }),
};

const { outputFiles, metafile } = await build({
  entryPoints: ["entry.js"], bundle: true, format: "esm", minify: true, charset: "utf8", target: ["chrome110", "firefox115", "safari16.4"],
  legalComments: "none", metafile: true, write: false, plugins: [adoptedStyles],
});

const packages = [...new Set(Object.keys(metafile.inputs).map((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]).filter(Boolean))].sort();
const heads = [];
let terms = "";
for (const name of packages) {
  const folder = new URL(`node_modules/${name}/`, import.meta.url);
  const { version, license } = JSON.parse(await readFile(new URL("package.json", folder), "utf8"));
  const text = (await readFile(new URL("LICENSE", folder), "utf8")).trim();
  if (license !== "MIT") throw new Error(`${name} has another licence: ${license}`);
  const [copyright] = /^Copyright .*$/m.exec(text);
  heads.push(`${name} ${version}: ${copyright}`);
  terms ||= text.slice(text.indexOf("Permission is hereby granted"));
}
const banner = `/*\nMade by gateway/console/codemirror/build.js of these packages, each under the MIT License:\n\n${heads.join("\n")}\n\n${terms}\n*/\n`;
await writeFile(TARGET, banner + outputFiles[0].text);
console.log(`${TARGET.pathname}: ${Math.round((banner.length + outputFiles[0].text.length) / 1024)} KB of ${packages.length} packages`);
