mod template_child;
mod text_golden;
