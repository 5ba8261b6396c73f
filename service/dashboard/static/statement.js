// <input type="file" data-into="ID">: the chosen file's text goes into that field, and its form is sent.

document.addEventListener("change", async ({ target }) => {
  if (!target.dataset.into || !target.files.length) return;
  const field = document.getElementById(target.dataset.into);
  field.value = await target.files[0].text();
  field.form.requestSubmit();
});
