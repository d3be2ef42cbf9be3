// Offers the other versions of this page in the side bar. versions.js has them, newest first, each with its pages; a
// site that stands alone has none.
document.addEventListener("DOMContentLoaded", () => {
  const root = new URL(document.documentElement.dataset.content_root, location.href);
  const own = root.pathname.split("/").at(-2);
  const brand = document.querySelector(".sidebar-brand");
  if (!(own in cirandaVersions) || !brand) return;

  const page = location.href.slice(root.href.length).split(/[?#]/)[0] || "index.html";
  const choice = document.createElement("select");
  choice.className = "version-choice";
  choice.setAttribute("aria-label", "Version of this documentation");
  for (const version of Object.keys(cirandaVersions)) choice.add(new Option(version, version, false, version === own));
  choice.addEventListener("change", () => {
    const there = cirandaVersions[choice.value].includes(page) ? page : "index.html";
    location.assign(new URL(`../${choice.value}/${there}`, root));
  });
  brand.after(choice);
});
